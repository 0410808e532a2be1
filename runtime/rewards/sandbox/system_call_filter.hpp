#pragma once

#include <linux/filter.h>

#include <vector>

namespace mgpu::rewards {

// The seccomp filter of a sandbox. Namespaces and read-only mounts do not cover these system calls:
//
// - Sockets other than IP: a Unix socket of the file system (Docker's, a user session's) can be
//   reached from any network namespace, and AF_VSOCK has none. Connected pairs are allowed.
// - Making or entering namespaces, in which the program would have capabilities.
// - Keyrings, which the program would share with the trainer.
// - Debugging: with it the program could stop the first process of the sandbox.
// - Files by handle, and interfaces with a large attack surface that rewards do not need.
//
// Empty on architectures whose system calls it does not know.
std::vector<sock_filter> system_call_filter();

}  // namespace mgpu::rewards
