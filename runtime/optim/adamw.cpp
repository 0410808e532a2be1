#include "runtime/optim/adamw.hpp"

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace mgpu::optim {
namespace {

static_assert(kCodedBlock == ops::kMomentBlock);

// The tensors of a span that join() extends together.
std::vector<Tensor*> vectors_of(Span& span) {
  std::vector<Tensor*> vectors{&span.master, &span.grad, &span.first.values, &span.second.values};
  if (span.value.defined()) vectors.push_back(&span.value);
  return vectors;
}

// `size` elements of the view's storage from its beginning on.
Tensor stretched(const Tensor& view, std::int64_t size) {
  return view.as_strided({size}, {1}, view.storage_offset());
}

std::int64_t end_of(const Tensor& view) {
  return view.storage_offset() + view.numel();
}

// Whether the blocks of `next` continue those of `before`.
bool blocks_join(const Moment& before, const Moment& next) {
  return (before.lead + before.size()) % ops::kMomentBlock == 0 && next.lead == 0 &&
         end_of(before.scales) == next.scales.storage_offset();
}

// Appends `next` to `span` if one launch can update both. Weights, gradients and moments lie in
// flat vectors in the same order. If two fragments with the same decay have the same distance in
// all vectors, only padding lies between them; its gradients and weights are 0 and stay 0. 8-bit
// codes must follow without a gap: blocks contain no padding.
bool join(Span& span, Span& next) {
  if (span.decay != next.decay || span.rate != next.rate) return false;
  if (span.first.coded() != next.first.coded()) return false;
  const auto ours = vectors_of(span), theirs = vectors_of(next);
  const auto gap = theirs[0]->storage_offset() - end_of(*ours[0]);
  for (std::size_t i = 0; i < ours.size(); ++i)
    if (theirs[i]->storage_offset() - end_of(*ours[i]) != gap) return false;
  if (gap < 0) return false;
  if (span.first.coded()) {
    if (gap != 0 || !blocks_join(span.first, next.first)) return false;
    const auto blocks = span.first.scales.numel() + next.first.scales.numel();
    for (Moment* moment : {&span.first, &span.second})
      moment->scales = stretched(moment->scales, blocks);
  }
  const auto size = span.master.numel() + gap + next.master.numel();
  for (Tensor* vector : ours) *vector = stretched(*vector, size);
  return true;
}

Span span_of(const FragmentState& state) {
  const auto& owned = *state.owned;
  const bool own_master = owned.value.scalar_type() != at::kFloat;
  return {state.at("master").values,
          own_master ? owned.value : Tensor(),
          owned.grad,
          state.at("first"),
          state.at("second"),
          owned.fragment.decay,
          owned.fragment.rate};
}

// Adds a fragment, for as few launches as possible.
void add(std::vector<Span>& spans, Span span) {
  if (spans.empty() || !join(spans.back(), span)) spans.push_back(std::move(span));
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
  const bool own_master = on_device.dtype() != at::kFloat;
  count_ = at::zeros({}, on_device.dtype(at::kFloat));
  Tensor master;
  if (own_master) master = at::zeros({owned_size}, on_device.dtype(at::kFloat));
  const bool coded = options.moments == Moments::eight_bit;
  const auto device = on_device.device();
  const MomentVectors first(owned, owned_size, options.moments,
                            coded ? first_moment_table(device) : Tensor());
  const MomentVectors second(owned, owned_size, options.moments,
                             coded ? second_moment_table(device) : Tensor());
  moment_bytes_ = first.bytes() + second.bytes();
  for (std::size_t i = 0; i < owned.size(); ++i) {
    const auto& f = owned[i].fragment;
    const Tensor weights = own_master ? master.narrow(0, f.owned, f.size) : owned[i].value;
    if (own_master) weights.copy_(owned[i].value);
    states_.push_back({&owned[i],
                       {{"master", Moment{weights, {}, {}, 0}},
                        {"first", first[i], first_moment_table},
                        {"second", second[i], second_moment_table}}});
  }
  for (const auto& state : states_) {
    add(all_, span_of(state));
    add(of_bucket_[state.owned->fragment.bucket], span_of(state));
  }
}

std::int64_t AdamW::steps_taken() const {
  return static_cast<std::int64_t>(count_.item<float>());
}

void AdamW::set_steps_taken(std::int64_t steps) {
  count_.fill_(static_cast<double>(steps));
}

Tensor AdamW::squared_gradient_norm() const {
  if (all_.empty()) return at::zeros({}, count_.options());
  std::vector<Tensor> grads;
  for (const auto& span : all_) grads.push_back(span.grad);
  const auto norms = at::stack(at::_foreach_norm(grads, 2, at::kFloat));
  return at::mul(norms, norms).sum();
}

void AdamW::begin_step(const StepSettings& step) {
  if (!all_.empty()) count_.add_(step.skip.neg().add_(1));
}

void AdamW::update(int bucket, const StepSettings& step) {
  const auto found = of_bucket_.find(bucket);
  if (found == of_bucket_.end()) return;
  for (const auto& span : found->second) {
    adamw_step({step.learning_rate * span.rate, options_.beta1, options_.beta2, options_.epsilon,
                span.decay ? options_.weight_decay : 0},
               span, step.clip, step.skip, count_);
  }
}

void AdamW::use_loaded_state() {
  for (auto& span : all_)
    if (span.value.defined()) span.value.copy_(span.master);
}

MakeOptimizer make_adamw(const AdamWOptions& options) {
  return [options](std::vector<parallel::OwnedFragment>& owned, std::int64_t owned_size) {
    return std::make_unique<AdamW>(owned, owned_size, options);
  };
}

}  // namespace mgpu::optim
