#pragma once

#include <cstdint>

// The byte layout of a matrix in LLM.int8's format in our buffers: the scales of its rows, then the
// codes. Needs no LibTorch.
namespace mgpu::ops {

struct Int8Layout {
  std::int64_t codes = 0;  // offset in bytes; the scales are at 0
  std::int64_t bytes = 0;
};

constexpr Int8Layout int8_layout(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kAlign = 64;
  const auto aligned = [](std::int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; };
  const auto codes = aligned(rows * 4);
  return {codes, codes + aligned(rows * columns)};
}

}  // namespace mgpu::ops
