#pragma once

#include "launcher/options/options.hpp"
#include "launcher/ranks/inherited.hpp"

namespace mgpu::launcher {

// Runs a --hostfile job: starts one agent on each host, over ssh if the host is not this machine,
// sends each its environment and a new secret on stdin, passes their output through, and returns
// the job's exit status when all have exited. An agent stops when its stdin ends, so that no
// process outlives this one. `program` is argv[0].
int run_ssh_launch(const Options& options, const Inherited& inherited, const std::string& program);

// What it would start, as text.
std::string show_ssh_launch(const Options& options);

}  // namespace mgpu::launcher
