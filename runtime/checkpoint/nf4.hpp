#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/checkpoint/weights.hpp"
#include "runtime/kernels/nf4_layout.hpp"

// bitsandbytes' NF4, computed on the CPU: the reference for testing the kernels, and the reader and
// writer of its tensors. A tensor is flat. Every `kNf4Block` elements share a scale, which is the
// largest of their magnitudes. An element is the 4-bit index of a level; two elements share a byte,
// the first in the high half.
namespace mgpu::checkpoint {

using ops::kNestedBlock;
using ops::kNf4Block;
using ops::kNf4Levels;

// The index of the level for an element divided by its block's scale: the number of midpoints
// between adjacent levels that are below it.
int nf4_index(float scaled);

// 8-bit scales, as codes of dynamic_levels(): level * nested[i / 256] + offset.
struct NestedScales {
  std::vector<std::uint8_t> indices;
  std::vector<float> scales;
  std::array<float, 256> levels{};
  float offset = 0;
};

struct Nf4Tensor {
  DType dtype = DType::bf16;  // of the original tensor
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> packed;
  std::vector<float> scales;           // one per block; empty if nested
  std::optional<NestedScales> nested;  // "double quantization"
};

// Throws if a value is not finite.
Nf4Tensor quantize_nf4(std::span<const float> values, std::vector<std::int64_t> shape, DType dtype,
                       bool nested);

std::vector<float> block_scales(const Nf4Tensor& tensor);
std::vector<float> dequantize_nf4(const Nf4Tensor& tensor);  // not yet rounded to dtype

// The tensors that store a 4-bit tensor in a checkpoint: NAME, NAME.absmax, NAME.quant_map,
// NAME.quant_state.bitsandbytes__nf4, and those of nested scales.
struct NamedBytes {
  TensorPlan plan;
  std::vector<std::byte> bytes;
};
std::vector<NamedBytes> nf4_parts(const std::string& name, const Nf4Tensor& tensor);

bool is_nf4(const Weights& weights, const std::string& name);

// Throws an error that names the part that is missing or does not fit the others.
Nf4Tensor read_nf4(const Weights& weights, const std::string& name);

}  // namespace mgpu::checkpoint
