#pragma once

#include "launcher/options/options.hpp"
#include "launcher/ranks/inherited.hpp"

namespace mgpu::launcher {

// Runs the job of a --hostfile: starts one agent on each host, over ssh where that is not this
// machine, gives each its environment and a fresh secret on its stdin, passes their output through,
// and returns the job's exit status when all have ended. The end of that stdin ends an agent, so
// that nothing outlives this process. `program` is how we were started (argv[0]).
int run_ssh_launch(const Options& options, const Inherited& inherited, const std::string& program);

// What it would start, for people.
std::string show_ssh_launch(const Options& options);

}  // namespace mgpu::launcher
