#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "runtime/grpo/loss_metrics.hpp"

namespace mgpu::grpo {

// Collects the numbers of a micro-batch. What is never added stays 0, or -inf.
class MetricSums {
 public:
  explicit MetricSums(at::TensorOptions options);  // of fp64 numbers on the device

  void add(Sum sum, const at::Tensor& numbers);
  // The largest of the numbers where `has` is above 0.
  void most(Most most, const at::Tensor& numbers, const at::Tensor& has);

  LossMetrics metrics() const;

 private:
  std::vector<at::Tensor> sums_, most_;
};

}  // namespace mgpu::grpo
