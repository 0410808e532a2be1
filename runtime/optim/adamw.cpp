#include "runtime/optim/adamw.hpp"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cmath>

namespace mgpu::optim {

AdamW::AdamW(std::vector<parallel::OwnedFragment>& owned, std::int64_t owned_size,
             const AdamWOptions& options)
    : options_(options) {
  if (owned.empty()) return;
  const auto on_device = owned.front().value.options();
  const auto moment_dtype = options.moments == Moments::bf16 ? at::kBFloat16 : at::kFloat;
  const bool own_master = on_device.dtype() != at::kFloat;
  Tensor master;
  if (own_master) master = at::zeros({owned_size}, on_device.dtype(at::kFloat));
  const Tensor first = at::zeros({owned_size}, on_device.dtype(moment_dtype));
  const Tensor second = at::zeros({owned_size}, on_device.dtype(moment_dtype));
  for (auto& o : owned) {
    const auto& f = o.fragment;
    State state{&o, own_master ? master.narrow(0, f.owned, f.size) : o.value,
                first.narrow(0, f.owned, f.size), second.narrow(0, f.owned, f.size)};
    if (own_master) state.master.copy_(o.value);
    states_.push_back(std::move(state));
  }
}

Tensor AdamW::squared_gradient_norm() const {
  if (states_.empty()) return at::zeros({}, at::kFloat);
  std::vector<Tensor> grads;
  for (const auto& state : states_) grads.push_back(state.owned->grad);
  const auto norms = at::stack(at::_foreach_norm(grads, 2, at::kFloat));
  return at::mul(norms, norms).sum();
}

void AdamW::step(double learning_rate, const Tensor& clip, const Tensor& skip) {
  ++steps_;
  if (states_.empty()) return;
  const bool same = states_.front().first.scalar_type() == at::kFloat &&
                    states_.front().owned->grad.scalar_type() == at::kFloat;
  if (same) {
    step_fused(learning_rate, clip, skip);
  } else {
    step_composed(learning_rate, clip, skip);
  }
}

// All in fp32: torch's own fused step, once for what decays and once for what does not.
void AdamW::step_fused(double learning_rate, const Tensor& clip, const Tensor& skip) {
  const auto scale = clip.reciprocal();  // it divides gradients by this
  const auto count = at::full({}, static_cast<double>(steps_), clip.options());
  for (const bool decays : {true, false}) {
    std::vector<Tensor> master, grads, first, second, none, values, counts;
    for (const auto& state : states_) {
      if (state.owned->fragment.decay != decays) continue;
      master.push_back(state.master);
      grads.push_back(state.owned->grad);
      first.push_back(state.first);
      second.push_back(state.second);
      values.push_back(state.owned->value);
      counts.push_back(count);
    }
    if (master.empty()) continue;
    at::_fused_adamw_(master, grads, first, second, none, counts, learning_rate, options_.beta1,
                      options_.beta2, decays ? options_.weight_decay : 0, options_.epsilon, false,
                      false, scale, skip);
    if (values.front().scalar_type() != at::kFloat) at::_foreach_copy_(values, master);
  }
}

// The same arithmetic in fp32 with states and gradients of other types.
void AdamW::step_composed(double learning_rate, const Tensor& clip, const Tensor& skip) {
  const auto& o = options_;
  const double correction1 = 1 - std::pow(o.beta1, static_cast<double>(steps_));
  const double correction2 = 1 - std::pow(o.beta2, static_cast<double>(steps_));
  const auto skipped = skip.to(at::kBool);
  for (auto& state : states_) {
    const auto grad = at::mul(state.owned->grad.to(at::kFloat), clip);
    const auto first = state.first.to(at::kFloat).mul_(o.beta1).add_(grad, 1 - o.beta1);
    const auto second =
        state.second.to(at::kFloat).mul_(o.beta2).addcmul_(grad, grad, 1 - o.beta2);
    const double decay = state.owned->fragment.decay ? o.weight_decay : 0;
    const auto denominator = second.sqrt().div_(std::sqrt(correction2)).add_(o.epsilon);
    const auto updated = at::mul(state.master, 1 - learning_rate * decay)
                             .addcdiv_(first, denominator, -learning_rate / correction1);
    state.master.copy_(at::where(skipped, state.master, updated));
    state.first.copy_(at::where(skipped, state.first.to(at::kFloat), first));
    state.second.copy_(at::where(skipped, state.second.to(at::kFloat), second));
  }
  publish_master();
}

void AdamW::publish_master() {
  for (auto& state : states_) {
    if (state.owned->value.scalar_type() != at::kFloat) state.owned->value.copy_(state.master);
  }
}

}  // namespace mgpu::optim
