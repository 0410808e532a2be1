#pragma once

#include <cstdint>

// The byte layout of a matrix in E4M3 with a scale per block of 128 x 128 elements in our buffers:
// the scales, then the codes. Needs no LibTorch.
namespace mgpu::ops {

inline constexpr std::int64_t kFp8Block = 128;

constexpr std::int64_t fp8_blocks(std::int64_t size) {
  return (size + kFp8Block - 1) / kFp8Block;
}

// cuBLASLt wants the scales of a row of blocks at a multiple of 16 bytes.
constexpr std::int64_t fp8_scale_stride(std::int64_t columns) {
  return (fp8_blocks(columns) + 3) / 4 * 4;
}

struct Fp8Layout {
  std::int64_t codes = 0;  // offset in bytes; the scales are at 0
  std::int64_t bytes = 0;
};

constexpr Fp8Layout fp8_layout(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kAlign = 64;
  const auto aligned = [](std::int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; };
  const auto codes = aligned(fp8_blocks(rows) * fp8_scale_stride(columns) * 4);
  return {codes, codes + aligned(rows * columns)};
}

}  // namespace mgpu::ops
