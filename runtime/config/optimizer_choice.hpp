#pragma once

#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/optim/state_tensors.hpp"

// Which optimizer the recipe's keys choose.
namespace mgpu::train {

optim::Moments moments_of(const TrainConfig& config);

// What the optimizer keeps for the trained weights, besides their master weights.
std::vector<optim::StateTensor> optimizer_state(const TrainConfig& config);

}  // namespace mgpu::train
