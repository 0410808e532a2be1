#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace mgpu::ops {

using at::Tensor;

// The number of elements that share a scale in an 8-bit moment.
inline constexpr std::int64_t kMomentBlock = 256;

// A moment of AdamW for a range of a tensor, in fp32, bf16 or 8-bit codes. A code is the level
// nearest to value / scale, where the scale is the largest magnitude in the block. Blocks are
// counted from the tensor's beginning, so that most blocks are the same however tensors are cut;
// `lead` elements of the first block lie before this range.
struct Moment {
  Tensor values;
  Tensor scales;  // with codes: fp32, one per block
  Tensor table;   // with codes: see moment_table()
  std::int64_t lead = 0;

  bool coded() const { return scales.defined(); }
  std::int64_t size() const { return values.numel(); }
};

// The number of blocks that `size` elements span if `lead` elements of the first block precede
// them.
std::int64_t moment_blocks(std::int64_t lead, std::int64_t size);

// Returns rows of 256: the levels in ascending order; the border between each level and the next,
// of which the last is infinite; and the entries of kernels::code_of(), whose bits are not those of
// fp32 numbers. In a table without negative levels a value above 0 never rounds to 0: a second
// moment of 0 beside a first moment above 0 would give an unbounded step.
Tensor moment_table(std::span<const float, 256> levels, at::Device device);

// A view of `size` elements from `from` on.
Moment part_of(const Moment& moment, std::int64_t from, std::int64_t size);

// The scales: the largest magnitude of each block.
Tensor block_scales(const Tensor& values, std::int64_t lead);

// The moment in fp32; a view if it is stored in fp32.
Tensor decode(const Moment& moment);

// 32 random bits per element, as int64: a function of its weight before the step, its gradient and
// the number of the step, and so the same wherever the element is stored. `weights` and `grad` are
// fp32, `step` is a scalar.
Tensor random_bits(const Tensor& weights, const Tensor& grad, const Tensor& step);

// Rounds fp32 values to bf16, up or down at random, so that their mean stays the same. To nearest,
// a moment would stall: at beta2 0.999 a step changes it by less than half of bf16's spacing. Uses
// the lower half of the random bits. Returns the rounded values in fp32.
Tensor round_at_random(const Tensor& values, const Tensor& bits);

// Stores fp32 values in `moment`. With codes, `scales` must be at least block_scales(values).
// Decoding and encoding with the same scales does not change the codes.
void encode_(const Moment& moment, const Tensor& values, const Tensor& scales);

}  // namespace mgpu::ops
