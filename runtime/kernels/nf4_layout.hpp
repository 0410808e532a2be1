#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

// The levels of NF4 and the byte layout of an NF4 matrix in our buffers. Both are those of
// bitsandbytes. Needs no LibTorch.
namespace mgpu::ops {

inline constexpr std::int64_t kNf4Block = 64;      // elements that share a scale
inline constexpr std::int64_t kNestedBlock = 256;  // scales that share a scale, when nested
inline constexpr std::int64_t kNestedLevels = 256;

// The values that the 4-bit codes stand for, before scaling.
inline constexpr std::array<float, 16> kNf4Levels = {
    -1.0F,
    -0.6961928009986877F,
    -0.5250730514526367F,
    -0.39491748809814453F,
    -0.28444138169288635F,
    -0.18477343022823334F,
    -0.09105003625154495F,
    0.0F,
    0.07958029955625534F,
    0.16093020141124725F,
    0.24611230194568634F,
    0.33791524171829224F,
    0.44070982933044434F,
    0.5626170039176941F,
    0.7229568362236023F,
    1.0F,
};

// The borders between adjacent levels.
constexpr std::array<float, 15> nf4_midpoints() {
  std::array<float, 15> between{};
  for (std::size_t i = 0; i < between.size(); ++i)
    between[i] = (kNf4Levels[i] + kNf4Levels[i + 1]) / 2;
  return between;
}

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
