#pragma once

#include <sys/types.h>

#include <string>

namespace mgpu::launcher {

// Where the jobs of a user have their keys in etcd if no prefix is given: "/mgpu-run/<user name>".
// All nodes of a job must compute the same one, so it contains the name and not the number, which
// can differ between nodes. Throws UsageError if the user has no name on this node: a prefix made
// of something else could differ from that of the other nodes, and each group of nodes would run
// the job.
std::string default_etcd_prefix(uid_t uid);

}  // namespace mgpu::launcher
