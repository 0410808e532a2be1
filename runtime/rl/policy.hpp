#pragma once

#include <cstdint>

#include "runtime/comm/comm.hpp"
#include "runtime/train/learner.hpp"
#include "runtime/train/model_source.hpp"

namespace mgpu::rl {

// The model that is trained, as the parts of a trainer use it. All of it outlives them.
struct Policy {
  const train::ModelSource& source;
  train::Learner& learner;
  comm::Comm& comm;  // of all ranks
  at::Device device;
  double temperature = 1;               // of its completions
  std::int64_t per_device = 1;          // completions that a rank computes at a time
  std::int64_t micro_batch_tokens = 0;  // their tokens instead, if not 0
};

}  // namespace mgpu::rl
