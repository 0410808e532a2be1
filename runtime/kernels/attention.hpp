#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/kernels/attention_plans.hpp"

// Causal attention within sequences that are concatenated without padding.
namespace mgpu::ops {

using at::Tensor;

// Sequences that begin alike have their common tokens once: the first `count` sequences are
// beginnings, and each of the others, a branch, continues one. The tokens of a branch attend to
// all tokens of their beginning too. The branches of a beginning lie together, in the order of the
// beginnings.
struct SharedBeginnings {
  std::int64_t count = 0;             // 0: there are none
  std::int64_t tokens = 0;            // of all beginnings; then come those of the branches
  std::int64_t longest = 0;           // in tokens
  std::int64_t longest_branches = 0;  // in tokens: all branches of one beginning
  // [count + 1]: where the beginnings start, and their branches, the latter counted from the first
  // branch; the same as int32 on the device.
  std::vector<std::int32_t> starts, branch_starts;
  Tensor device_starts, device_branch_starts;
};

class PackedPlan;

// The sequences of a micro-batch for one call of cuDNN.
struct PackedSequences {
  std::shared_ptr<const PackedPlan> plan;
  Tensor numbers;  // lengths and starts as the plan has them; int32 on the device
};

// The boundaries of a micro-batch's sequences.
struct Sequences {
  Tensor starts;       // int32 [sequences + 1] on the device
  Tensor host_starts;  // the same on the host
  std::int64_t count = 0;
  std::int64_t longest = 0;
  std::int64_t tokens = 0;
  bool equal = false;  // all sequences have the same length
  // Undefined if `equal`: the index of every token in the padded layout [sequences, longest].
  Tensor places;
  // On a GPU: set if one call of cuDNN computes all of them. Otherwise what cuDNN computes in
  // parts; flash attention computes all, or the rest of it.
  std::shared_ptr<const PackedSequences> packed;
  std::vector<CudnnPart> cudnn;
  Tensor rest, rest_starts;  // see AttentionDivision; on the device, undefined if there is no rest
  std::int64_t rest_longest = 0;
  SharedBeginnings beginnings;
};

struct Attention {
  Tensor out;  // [tokens, heads * head_dim]
  Tensor lse;  // with shared beginnings [heads, tokens], otherwise as the backend has it
  Tensor first_state, second_state;  // what the backend's backward needs
  struct Part {
    Tensor lse, first_state, second_state;
  };
  std::vector<Part> parts = {};  // of Sequences::cudnn; the above is then of the rest
};

struct HeadShape {
  std::int64_t heads, kv_heads, head_dim;
};

// Counts one more micro-batch with these sequences and decides what cuDNN computes. Call it once
// per micro-batch, so that all layers, and a recomputed forward pass, use the same implementation.
// cuDNN is twice as fast as flash attention, but it needs a plan for every shape, supports no
// shared beginnings here, and its backward pass adds in varying order. Not thread-safe.
void choose_attention(Sequences& sequences, const HeadShape& shape, at::Device device,
                      at::ScalarType dtype);

// `qkv` is [tokens, (heads + 2 kv_heads) * head_dim].
Attention attention(const Tensor& qkv, const HeadShape& shape, const Sequences& sequences);
// Returns the gradient of qkv; `g` is the gradient of Attention::out.
Tensor attention_backward(const Tensor& g, const Tensor& qkv, const Attention& saved,
                          const HeadShape& shape, const Sequences& sequences);

}  // namespace mgpu::ops
