#pragma once

#include "launcher/options/options.hpp"

namespace mgpu::launcher {

// Fills what nobody has said (`options.given`) from what the scheduler tells (`options.cluster`):
// number of nodes, our place among them, where they meet, the job's id. Nothing is filled for
// --standalone, --nnodes 1, and agents of a --hostfile, and its GPUs are forgotten. Throws
// UsageError with the one line to print when what the scheduler tells is needed and makes no job.
void apply_cluster(Options& options);

}  // namespace mgpu::launcher
