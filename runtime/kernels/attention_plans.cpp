#include "runtime/kernels/attention_plans.hpp"

namespace mgpu::ops {

bool AttentionPlans::count(const AttentionShape& shape) {
  if (plans_.contains(shape)) return true;
  if (plans_.size() >= limits_.most) return false;
  if (plans_.size() >= limits_.at_once) {
    if (counts_.size() >= limits_.counted && !counts_.contains(shape)) counts_.clear();
    if (++counts_[shape] < limits_.often) return false;
  }
  counts_.erase(shape);
  plans_.insert(shape);
  if (plans_.size() >= limits_.most) counts_.clear();
  return true;
}

}  // namespace mgpu::ops
