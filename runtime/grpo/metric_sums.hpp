#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "runtime/grpo/loss_metrics.hpp"

namespace mgpu::grpo {

// Collects the metrics of a micro-batch. A sum that is never added stays 0, a maximum -inf.
class MetricSums {
 public:
  explicit MetricSums(at::TensorOptions options);  // for fp64 tensors on the device

  void add(Sum sum, const at::Tensor& numbers);
  // The maximum of the numbers for which `has` is above 0.
  void max(Max which, const at::Tensor& numbers, const at::Tensor& has);

  LossMetrics metrics() const;

 private:
  std::vector<at::Tensor> sums_, maxima_;
};

}  // namespace mgpu::grpo
