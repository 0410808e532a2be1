#pragma once

#include "launcher/options/options.hpp"

namespace mgpu::launcher {

// Fills in options that are not set (`options.given`) from the scheduler (`options.scheduler`):
// number of nodes, node rank, rendezvous endpoint, job id. With --standalone, with --nnodes 1 and
// in agents of a --hostfile it fills in nothing and drops the scheduler's number of GPUs. Throws
// UsageError with the one line to print when the scheduler's data is needed but inconsistent.
void apply_scheduler(Options& options);

}  // namespace mgpu::launcher
