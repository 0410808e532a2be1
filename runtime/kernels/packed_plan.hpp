#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <memory>

#include "runtime/kernels/attention_plans.hpp"

// cuDNN's attention of sequences that are concatenated without padding, and of any lengths within
// the bounds of a plan.
namespace mgpu::ops {

// What a plan reads and writes. Starts count elements of the tensors that they are named after, and
// lengths and starts are int32 on the device.
enum class PackedOperand : std::int64_t {
  q,  // [tokens, heads, head_dim]; q, k and v are views of one tensor, [tokens, heads + 2 kv_heads,
  k,  // head_dim]
  v,
  out,    // [tokens, heads, head_dim]
  stats,  // [tokens, heads], fp32
  out_gradient,
  q_gradient,  // a view of a tensor like that of q
  k_gradient,  // [tokens, kv_heads, head_dim]
  v_gradient,
  lengths,       // [sequences]
  input_starts,  // [sequences + 1], as all others
  out_starts,
  key_starts,  // of k_gradient and v_gradient
  stats_starts
};
using PackedOperands = std::map<PackedOperand, void*>;

class PackedPlan {
 public:
  virtual ~PackedPlan() = default;
  virtual const AttentionShape& shape() const = 0;
  // Temporary memory of a call on the device, in bytes.
  virtual std::int64_t forward_workspace() const = 0;
  virtual std::int64_t backward_workspace() const = 0;
  // These queue the work on the current stream.
  virtual void forward(const PackedOperands& operands, void* workspace) const = 0;
  virtual void backward(const PackedOperands& operands, void* workspace) const = 0;
};

// Whether the build has plans, and PyTorch has loaded a cuDNN that is new enough.
bool has_packed_plans();
// For the current device. Throws if cuDNN does not support the shape.
std::shared_ptr<const PackedPlan> build_packed_plan(const AttentionShape& shape,
                                                    at::ScalarType type);

}  // namespace mgpu::ops
