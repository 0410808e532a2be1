#pragma once

#include "rendezvous/contract.hpp"
#include "runtime/config/config.hpp"

namespace mgpu::recipes {

// Trains a policy with rewards (GRPO), as this rank of a job. Returns the exit status.
int grpo(const train::TrainConfig& config, const rendezvous::Contract& contract);

}  // namespace mgpu::recipes
