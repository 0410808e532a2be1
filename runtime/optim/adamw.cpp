#include "runtime/optim/adamw.hpp"

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "runtime/kernels/on_gpu.hpp"

namespace mgpu::optim {
namespace {

// `flat` from this element of `like` on: views of one storage keep their distance.
Tensor stretched(const Tensor& view, std::int64_t size) {
  return view.as_strided({size}, {1}, view.storage_offset());
}

}  // namespace

AdamW::AdamW(std::vector<parallel::OwnedFragment>& owned, std::int64_t owned_size,
             const AdamWOptions& options)
    : options_(options) {
  if (owned.empty()) {
    count_ = at::zeros({}, at::kFloat);
    return;
  }
  const auto on_device = owned.front().value.options();
  const auto moment_dtype = options.moments == Moments::bf16 ? at::kBFloat16 : at::kFloat;
  const bool own_master = on_device.dtype() != at::kFloat;
  count_ = at::zeros({}, on_device.dtype(at::kFloat));
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
  merge_spans();
}

// Weights, gradients and states lie in flat vectors in the same order. Where two fragments that
// decay alike are as far from each other in all of them, what lies between is padding, whose
// gradient and weight are 0 and stay so.
void AdamW::merge_spans() {
  for (const auto& state : states_) {
    const auto& f = state.owned->fragment;
    const bool own_master = state.owned->value.scalar_type() != at::kFloat;
    if (!spans_.empty() && spans_.back().decay == f.decay) {
      auto& span = spans_.back();
      const auto end = state.first.storage_offset() + f.size;
      const auto size = end - span.first.storage_offset();
      const auto same_distance = [&](const Tensor& begin, const Tensor& here) {
        return here.storage_offset() + f.size - begin.storage_offset() == size;
      };
      const auto& value = own_master ? span.value : span.master;
      if (same_distance(span.grad, state.owned->grad) && same_distance(value, state.owned->value)) {
        for (Tensor* t : {&span.master, &span.grad, &span.first, &span.second})
          *t = stretched(*t, size);
        if (own_master) span.value = stretched(span.value, size);
        continue;
      }
    }
    spans_.push_back({state.master, own_master ? state.owned->value : Tensor(), state.owned->grad,
                      state.first, state.second, f.decay});
  }
}

std::int64_t AdamW::steps_taken() const {
  return static_cast<std::int64_t>(count_.item<float>());
}

void AdamW::set_steps_taken(std::int64_t steps) {
  count_.fill_(static_cast<double>(steps));
}

Tensor AdamW::squared_gradient_norm() const {
  if (spans_.empty()) return at::zeros({}, count_.options());
  std::vector<Tensor> grads;
  for (const auto& span : spans_) grads.push_back(span.grad);
  const auto norms = at::stack(at::_foreach_norm(grads, 2, at::kFloat));
  return at::mul(norms, norms).sum();
}

void AdamW::step(double learning_rate, const Tensor& clip, const Tensor& skip) {
  if (spans_.empty()) return;
  count_.add_(skip.neg().add_(1));
  for (const auto& span : spans_) {
    const double decay = span.decay ? options_.weight_decay : 0;
    if (ops::on_gpu::can_adamw(span.master)) {
      ops::on_gpu::adamw_({learning_rate, options_.beta1, options_.beta2, options_.epsilon, decay},
                          span.master, span.value, span.grad, span.first, span.second, clip, skip,
                          count_);
    } else {
      step_span(span, learning_rate, decay, clip, skip);
    }
  }
}

// The same in ATen: torch's fused step where everything is fp32, else written out.
void AdamW::step_span(const Span& span, double learning_rate, double decay, const Tensor& clip,
                      const Tensor& skip) {
  const auto& o = options_;
  if (span.first.scalar_type() == at::kFloat && span.grad.scalar_type() == at::kFloat) {
    at::_fused_adamw_({span.master}, {span.grad}, {span.first}, {span.second}, {}, {count_},
                      learning_rate, o.beta1, o.beta2, decay, o.epsilon, false, false,
                      clip.reciprocal(), skip);
  } else {
    const auto correction1 = at::pow(o.beta1, count_).neg_().add_(1);
    const auto correction2 = at::pow(o.beta2, count_).neg_().add_(1);
    const auto skipped = skip.to(at::kBool);
    const auto grad = at::mul(span.grad.to(at::kFloat), clip);
    const auto first = span.first.to(at::kFloat).mul_(o.beta1).add_(grad, 1 - o.beta1);
    const auto second = span.second.to(at::kFloat).mul_(o.beta2).addcmul_(grad, grad, 1 - o.beta2);
    const auto denominator = second.sqrt().div_(correction2.sqrt()).add_(o.epsilon);
    const auto update = first.div(correction1).div_(denominator).mul_(learning_rate);
    const auto updated = at::mul(span.master, 1 - learning_rate * decay).sub_(update);
    span.master.copy_(at::where(skipped, span.master, updated));
    span.first.copy_(at::where(skipped, span.first.to(at::kFloat), first));
    span.second.copy_(at::where(skipped, span.second.to(at::kFloat), second));
  }
  if (span.value.defined()) span.value.copy_(span.master);
}

void AdamW::publish_master() {
  for (auto& span : spans_)
    if (span.value.defined()) span.value.copy_(span.master);
}

}  // namespace mgpu::optim
