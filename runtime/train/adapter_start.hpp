#pragma once

#include <map>
#include <string>

#include "runtime/comm/comm.hpp"
#include "runtime/config/config.hpp"
#include "runtime/parallel/shards.hpp"
#include "runtime/train/model_source.hpp"
#include "runtime/train/weights_io.hpp"

namespace mgpu::train {

// DoRA: sets the magnitudes to the lengths of the rows of the weights that `shards` holds, with
// their adapters. All ranks call it together.
void set_magnitudes(parallel::Shards& shards, const model::ModelConfig& model, double scale);

// PiSSA begins with the largest singular values of each weight W: B A = those values / scale, and
// the frozen weight becomes W - scale * B A. Sets all three, the same on all ranks, which call it
// together: rank 0 decomposes. Returns what makes a saved adapter an ordinary one, of twice the
// rank, of the unchanged W: below A the initial A, and beside B minus the initial B.
Appended begin_with_pissa(parallel::Shards& shards, const ModelSource& source,
                          const TrainConfig& config, comm::Comm& comm);

// The same for a run that resumes: reads A, B and what was appended from the saved adapter.
Appended resume_with_pissa(parallel::Shards& shards, const ModelSource& source,
                           const TrainConfig& config, const checkpoint::Weights& adapter);

}  // namespace mgpu::train
