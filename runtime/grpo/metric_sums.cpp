#include "runtime/grpo/metric_sums.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/max.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <limits>

namespace mgpu::grpo {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

}  // namespace

MetricSums::MetricSums(at::TensorOptions options)
    : sums_(static_cast<std::size_t>(Sum::count), at::zeros({}, options)),
      maxima_(static_cast<std::size_t>(Max::count), at::full({}, kNone, options)) {}

void MetricSums::add(Sum sum, const at::Tensor& numbers) {
  sums_[static_cast<std::size_t>(sum)] = numbers.sum();
}

void MetricSums::max(Max which, const at::Tensor& numbers, const at::Tensor& has) {
  if (numbers.numel() == 0) return;
  maxima_[static_cast<std::size_t>(which)] = numbers.masked_fill(has.le(0), kNone).max();
}

LossMetrics MetricSums::metrics() const {
  return {at::stack(sums_), at::stack(maxima_)};
}

LossMetrics no_metrics(at::Device device) {
  return MetricSums(at::TensorOptions(device).dtype(at::kDouble)).metrics();
}

void LossMetrics::add(const LossMetrics& other) {
  if (!sums.defined()) {
    *this = {other.sums.clone(), other.maxima.clone()};
    return;
  }
  sums.add_(other.sums);
  at::maximum_out(maxima, maxima, other.maxima);
}

}  // namespace mgpu::grpo
