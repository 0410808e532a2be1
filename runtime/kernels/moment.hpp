#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace mgpu::ops {

using at::Tensor;

// Elements that share a scale where a moment is held in 8 bits.
inline constexpr std::int64_t kMomentBlock = 256;

// A moment of AdamW for a stretch of a tensor: fp32, bf16, or codes of 8 bits. A code is the level
// nearest to value / scale, the scale the largest magnitude of its block. Blocks are counted from
// the tensor's beginning, so that most lie alike however tensors are cut; `lead` elements of the
// first block lie before this stretch.
struct Moment {
  Tensor values;
  Tensor scales;  // with codes: fp32, a block each
  Tensor table;   // with codes: see moment_table()
  std::int64_t lead = 0;

  bool coded() const { return scales.defined(); }
  std::int64_t size() const { return values.numel(); }
};

// How many blocks `size` elements lie in.
std::int64_t moment_blocks(std::int64_t lead, std::int64_t size);

// [2, 256]: the levels, ascending, and the border between each and the next, the last infinite.
// What is not 0 does not become 0 in a table without negative levels: a second moment of 0 beside
// a first that is not makes a step without bound.
Tensor moment_table(std::span<const float, 256> levels, at::Device device);

// `size` elements from `from` on; a view.
Moment part_of(const Moment& moment, std::int64_t from, std::int64_t size);

// The largest magnitude of each block.
Tensor block_scales(const Tensor& values, std::int64_t lead);

// As fp32; a view where it is held so.
Tensor decode(const Moment& moment);

// Stores fp32 values; with codes, `scales` must be what block_scales says or larger. Decoded
// and encoded with the same scales, codes stay what they are.
void encode_(const Moment& moment, const Tensor& values, const Tensor& scales);

}  // namespace mgpu::ops
