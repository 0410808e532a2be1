#include "runtime/grpo/loss_tokens.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/segment_reduce.h>

namespace mgpu::grpo {

Tokens::Tokens(const LossInput& input) : sequence_(input.sequence) {
  const auto sequences = input.weights.size(0);
  starts_ = at::searchsorted(sequence_, at::arange(sequences + 1, sequence_.options()));
  mask_ = spread(input.weights).gt(0);
  weights_ = mask_.to(at::kDouble);
  const Tensor lengths = sums(weights_);
  lengths_ = lengths.clamp_min(1);
  present_ = lengths.gt(0).to(at::kDouble);
  advantages_ = masked(spread(input.advantages));
  log_probs_ = masked(input.log_probs);
}

Tensor Tokens::masked(const Tensor& x) const {
  return x.to(at::kDouble).masked_fill(mask_.logical_not(), 0);
}

Tensor Tokens::sums(const Tensor& x) const {
  // The `unsafe` argument skips a check of the starts that would wait for the device.
  return at::segment_reduce(x, "sum", {}, {}, starts_, 0, true, 0);
}

Tensor Tokens::means(const Tensor& x) const {
  return sums(x).div_(lengths_);
}

Tensor Tokens::spread(const Tensor& x) const {
  return x.index_select(0, sequence_);
}

}  // namespace mgpu::grpo
