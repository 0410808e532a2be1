#pragma once

#include <cstdint>
#include <vector>

#include "runtime/data/dataset.hpp"
#include "runtime/data/packing.hpp"
#include "runtime/train/learner.hpp"

namespace mgpu::train {

struct EvaluationResult {
  double loss = 0;      // mean over all labels
  double accuracy = 0;  // labels that were the most likely token
  double entropy = 0;
  std::int64_t target_tokens = 0, examples = 0, batches = 0;
  double seconds = 0;
};

// Runs over every example once, spread over the ranks: they may get unequally many.
EvaluationResult evaluate(Learner& learner, const data::Dataset& dataset, const data::Items& items,
                          std::int64_t per_device);

}  // namespace mgpu::train
