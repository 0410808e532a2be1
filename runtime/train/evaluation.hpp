#pragma once

#include <cstdint>
#include <vector>

#include "runtime/data/dataset.hpp"
#include "runtime/data/packing.hpp"
#include "runtime/train/learner.hpp"

namespace mgpu::train {

struct EvaluationResult {
  double loss = 0;      // mean over all target tokens
  double accuracy = 0;  // share of target tokens that the model ranked first
  double entropy = 0;
  std::int64_t target_tokens = 0, examples = 0, batches = 0;
  double seconds = 0;
};

// Evaluates every example once. The examples are spread over the ranks, which may get different
// numbers of them. All ranks call it together.
EvaluationResult evaluate(Learner& learner, const data::Dataset& dataset, const data::Items& items,
                          std::int64_t per_device);

}  // namespace mgpu::train
