#include "runtime/optim/adamw_step.hpp"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>

#include <algorithm>

namespace mgpu::optim {
namespace {

// Elements of a span that are decoded at a time: a whole number of blocks, small compared to the
// model.
constexpr std::int64_t kPiece = 4096 * ops::kMomentBlock;

void store(const Moment& moment, const Tensor& values, const Tensor& skipped) {
  if (!moment.coded()) {
    moment.values.copy_(at::where(skipped, moment.values.to(at::kFloat), values));
    return;
  }
  const auto codes = moment.values.clone(), scales = moment.scales.clone();
  ops::encode_(moment, values, ops::block_scales(values, moment.lead));
  moment.values.copy_(at::where(skipped, codes, moment.values));
  moment.scales.copy_(at::where(skipped, scales, moment.scales));
}

// The step composed of ATen operations.
void written_out(const AdamWStep& step, const Span& span, const Tensor& clip, const Tensor& skip,
                 const Tensor& count) {
  const auto correction1 = at::pow(step.beta1, count).neg_().add_(1);
  const auto correction2 = at::pow(step.beta2, count).neg_().add_(1);
  const auto skipped = skip.to(at::kBool);
  const auto raw = span.grad.to(at::kFloat);
  const auto grad = at::mul(raw, clip);
  const auto first = ops::decode(span.first).mul(step.beta1).add_(grad, 1 - step.beta1);
  const auto second = ops::decode(span.second).mul(step.beta2).addcmul_(grad, grad, 1 - step.beta2);
  const auto denominator = second.sqrt().div_(correction2.sqrt()).add_(step.epsilon);
  const auto update = first.div(correction1).div_(denominator).mul_(step.learning_rate);
  const auto updated = at::mul(span.master, 1 - step.learning_rate * step.decay).sub_(update);
  if (span.first.values.scalar_type() == at::kBFloat16) {
    const auto bits = ops::random_bits(span.master, raw, count);
    store(span.first, ops::round_at_random(first, at::bitwise_right_shift(bits, 16)), skipped);
    store(span.second, ops::round_at_random(second, bits), skipped);
  } else {
    store(span.first, first, skipped);
    store(span.second, second, skipped);
  }
  span.master.copy_(at::where(skipped, span.master, updated));
}

Span part_of(const Span& span, std::int64_t from, std::int64_t size) {
  return {span.master.narrow(0, from, size),
          Tensor(),
          span.grad.narrow(0, from, size),
          ops::part_of(span.first, from, size),
          ops::part_of(span.second, from, size),
          span.decay,
          span.rate};
}

void written_out_by_pieces(const AdamWStep& step, const Span& span, const Tensor& clip,
                           const Tensor& skip, const Tensor& count) {
  const auto size = span.master.numel();
  for (std::int64_t from = 0; from < size;) {
    // Pieces end at block boundaries.
    const auto end =
        std::min(size, (from + span.first.lead) / kPiece * kPiece + kPiece - span.first.lead);
    written_out(step, part_of(span, from, end - from), clip, skip, count);
    from = end;
  }
}

}  // namespace

void adamw_step(const AdamWStep& step, const Span& span, const Tensor& clip, const Tensor& skip,
                const Tensor& count) {
  const auto& first = span.first;
  if (ops::on_gpu::can_adamw(span.master)) {
    if (first.coded()) {
      ops::on_gpu::adamw_8bit_(step, span.master, span.value, span.grad, first, span.second, clip,
                               skip, count);
    } else {
      ops::on_gpu::adamw_(step, span.master, span.value, span.grad, first.values,
                          span.second.values, clip, skip, count);
    }
    return;
  }
  if (first.values.scalar_type() == at::kFloat && span.grad.scalar_type() == at::kFloat) {
    at::_fused_adamw_({span.master}, {span.grad}, {first.values}, {span.second.values}, {}, {count},
                      step.learning_rate, step.beta1, step.beta2, step.decay, step.epsilon, false,
                      false, clip.reciprocal(), skip);
  } else {
    written_out_by_pieces(step, span, clip, skip, count);
  }
  if (span.value.defined()) span.value.copy_(span.master);
}

}  // namespace mgpu::optim
