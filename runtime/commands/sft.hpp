#pragma once

#include "rendezvous/contract.hpp"
#include "runtime/config/config.hpp"

namespace mgpu::recipes {

// Supervised fine-tuning as this rank of a job: reads the files that the configuration names and
// saves the trained model. Returns the exit status.
int sft(const train::TrainConfig& config, const rendezvous::Contract& contract);

// Tokenizes the dataset into the cache that sft() uses, without training. Returns the exit status.
int tokenize(const train::TrainConfig& config);

}  // namespace mgpu::recipes
