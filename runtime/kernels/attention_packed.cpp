#include "runtime/kernels/attention_packed.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "runtime/kernels/capability.hpp"
#include "runtime/kernels/packed_plan.hpp"

namespace mgpu::ops {
namespace {

constexpr int kLeastCapability = 90;        // Hopper
constexpr std::int64_t kMostHeadDim = 128;  // of cuDNN's backward pass on Hopper

// What PackedSequences::numbers contains, in this order, each from a multiple of 16 bytes on.
constexpr std::array kNumbers{PackedOperand::lengths, PackedOperand::input_starts,
                              PackedOperand::out_starts, PackedOperand::key_starts,
                              PackedOperand::stats_starts};

std::int64_t space_of_numbers(const AttentionShape& shape) {
  constexpr std::int64_t kStep = 16 / sizeof(std::int32_t);
  return (shape.sequences + kStep) / kStep * kStep;  // of sequences + 1
}

std::int64_t input_row(const AttentionShape& s) {
  return (s.heads + 2 * s.kv_heads) * s.head_dim;
}

// Sequences that the plan has beyond those at `starts` are empty.
Tensor numbers_of(std::span<const std::int32_t> starts, const AttentionShape& plan,
                  at::Device device) {
  const auto space = space_of_numbers(plan);
  const auto on_host = at::empty({static_cast<std::int64_t>(kNumbers.size()) * space},
                                 at::TensorOptions(at::kInt).pinned_memory(true));
  auto* const values = on_host.mutable_data_ptr<std::int32_t>();
  const std::array rows{input_row(plan), plan.heads * plan.head_dim, plan.kv_heads * plan.head_dim,
                        plan.heads};
  const auto start_of = [&](std::int64_t i) -> std::int64_t {
    return starts[std::min(static_cast<std::size_t>(i), starts.size() - 1)];
  };
  for (std::int64_t i = 0; i < space; ++i) {
    auto* value = values + i;
    *value = static_cast<std::int32_t>(start_of(i + 1) - start_of(i));
    for (const auto row : rows) *(value += space) = static_cast<std::int32_t>(start_of(i) * row);
  }
  return on_host.to(device, /*non_blocking=*/true);
}

// The plans of this process for a device and a type.
class PackedPlans {
 public:
  // Counts a micro-batch of this shape. Null if there is no plan for it.
  std::shared_ptr<const PackedPlan> count(const AttentionShape& shape, at::Device device,
                                          at::ScalarType type) {
    const auto chosen = shapes_.count(shape);
    if (!chosen) return nullptr;
    const auto found = plans_.find(*chosen);
    if (found != plans_.end()) return found->second;
    try {
      const c10::DeviceGuard guard(device);
      return plans_.emplace(*chosen, build_packed_plan(*chosen, type)).first->second;
    } catch (const std::exception& e) {
      TORCH_WARN_ONCE("cuDNN cannot compute up to ", chosen->sequences, " sequences of at most ",
                      chosen->length, " tokens (", chosen->tokens,
                      " in all) in one call, so their attention is slower: ", e.what());
      shapes_.refuse(*chosen);
      return nullptr;
    }
  }

 private:
  PackedShapes shapes_;
  std::map<AttentionShape, std::shared_ptr<const PackedPlan>> plans_;
};

PackedOperands operands_of(const Heads& h, const PackedSequences& s, const Tensor& out,
                           const Tensor& stats) {
  PackedOperands operands{{PackedOperand::q, h.q.data_ptr()},
                          {PackedOperand::k, h.k.data_ptr()},
                          {PackedOperand::v, h.v.data_ptr()},
                          {PackedOperand::out, out.data_ptr()},
                          {PackedOperand::stats, stats.data_ptr()}};
  auto* next = s.numbers.mutable_data_ptr<std::int32_t>();
  for (const auto numbers : kNumbers) {
    operands.emplace(numbers, next);
    next += space_of_numbers(s.plan->shape());
  }
  return operands;
}

Tensor workspace(std::int64_t bytes, const Tensor& like) {
  return at::empty({bytes}, like.options().dtype(at::kByte));
}

}  // namespace

bool pack_sequences(Sequences& s, const AttentionShape& model, at::Device device,
                    at::ScalarType type) {
  static std::map<std::pair<c10::DeviceIndex, at::ScalarType>, PackedPlans> plans;
  if (!has_packed_plans() || capability_of(device) < kLeastCapability ||
      model.head_dim > kMostHeadDim || model.head_dim % 16 != 0)
    return false;
  const auto starts = host_starts_of(s);
  const auto shape = packed_shape(starts, model);
  if (with_reserve(shape).tokens * input_row(shape) > std::numeric_limits<std::int32_t>::max())
    return false;
  auto plan = plans[{device.index(), type}].count(shape, device, type);
  if (!plan) return false;
  auto numbers = numbers_of(starts, plan->shape(), device);
  s.packed =
      std::make_shared<PackedSequences>(PackedSequences{std::move(plan), std::move(numbers)});
  return true;
}

Attention packed_attention(const Heads& h, const PackedSequences& s) {
  const auto tokens = h.q.size(0);
  Attention result;
  result.out = at::empty({tokens, h.q.size(1) * h.q.size(2)}, h.q.options());
  result.lse = at::empty({tokens, h.q.size(1)}, h.q.options().dtype(at::kFloat));
  const auto space = workspace(s.plan->forward_workspace(), h.q);
  s.plan->forward(operands_of(h, s, result.out, result.lse), space.data_ptr());
  return result;
}

void packed_attention_backward(const Tensor& g, const Heads& h, const Attention& saved,
                               const PackedSequences& s, const Heads& gradients) {
  // Not views of the result: the workspace has a multiple of their strides for every token.
  const auto gk = at::empty(h.k.sizes(), h.k.options());
  const auto gv = at::empty(h.v.sizes(), h.v.options());
  const auto dense = g.contiguous();
  auto operands = operands_of(h, s, saved.out, saved.lse);
  operands.emplace(PackedOperand::out_gradient, dense.data_ptr());
  operands.emplace(PackedOperand::q_gradient, gradients.q.data_ptr());
  operands.emplace(PackedOperand::k_gradient, gk.data_ptr());
  operands.emplace(PackedOperand::v_gradient, gv.data_ptr());
  const auto space = workspace(s.plan->backward_workspace(), h.q);
  s.plan->backward(operands, space.data_ptr());
  gradients.k.copy_(gk);
  gradients.v.copy_(gv);
}

}  // namespace mgpu::ops
