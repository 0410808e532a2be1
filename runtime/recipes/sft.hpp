#pragma once

#include "rendezvous/contract.hpp"
#include "runtime/config/config.hpp"

namespace mgpu::recipes {

// Supervised fine-tuning, from the files that the configuration names to a model on disk. Returns
// the process's exit status.
int sft(const train::TrainConfig& config, const rendezvous::Contract& contract);

// Fills the cache of token ids that sft() would fill, and trains nothing.
int tokenize(const train::TrainConfig& config);

}  // namespace mgpu::recipes
