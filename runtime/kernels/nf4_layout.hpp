#pragma once

#include <cstdint>

// The byte layout of an NF4 matrix in our buffers. The parts are those of bitsandbytes. Needs no
// LibTorch.
namespace mgpu::ops {

inline constexpr std::int64_t kNf4Block = 64;      // elements that share a scale
inline constexpr std::int64_t kNestedBlock = 256;  // scales that share a scale, when nested
inline constexpr std::int64_t kNestedLevels = 256;

// Offsets in bytes. Nested: scale i is levels[scales[i]] * outer[i / 256] + offset. Not nested:
// scales are fp32, and levels, outer and offset do not exist.
struct Nf4Layout {
  std::int64_t blocks = 0, outer_blocks = 0;
  std::int64_t levels = 0, outer = 0, offset = 0, scales = 0, codes = 0;
  std::int64_t bytes = 0;
};

// `elements` must be a multiple of kNf4Block.
constexpr Nf4Layout nf4_layout(std::int64_t elements, bool nested) {
  constexpr std::int64_t kAlign = 64;
  Nf4Layout at;
  const auto take = [&at](std::int64_t bytes) {
    const auto begin = at.bytes;
    at.bytes += (bytes + kAlign - 1) / kAlign * kAlign;
    return begin;
  };
  at.blocks = elements / kNf4Block;
  if (nested) {
    at.outer_blocks = (at.blocks + kNestedBlock - 1) / kNestedBlock;
    at.levels = take(kNestedLevels * 4);
    at.outer = take(at.outer_blocks * 4);
    at.offset = take(4);
  }
  at.scales = take(at.blocks * (nested ? 1 : 4));
  at.codes = take(elements / 2);
  return at;
}

}  // namespace mgpu::ops
