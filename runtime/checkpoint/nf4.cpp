#include "runtime/checkpoint/nf4.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "runtime/checkpoint/dynamic_levels.hpp"

namespace mgpu::checkpoint {

namespace {

constexpr float kLeastScale = 1e-38f;  // avoids division by zero for a block of zeros

constexpr std::array<float, 15> kMidpoints = ops::nf4_midpoints();

float largest_magnitude(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) {
    if (!std::isfinite(value))
      throw std::runtime_error(fmt::format("{} cannot be stored in 4 bits", value));
    largest = std::max(largest, std::abs(value));
  }
  return largest;
}

std::uint8_t nearest_level(float value) {
  const auto& levels = dynamic_levels();
  const auto above = std::ranges::lower_bound(levels, value);
  if (above == levels.begin()) return 0;
  if (above == levels.end()) return 255;
  const auto below = above - 1;
  const auto nearest = value - *below <= *above - value ? below : above;
  return static_cast<std::uint8_t>(nearest - levels.begin());
}

NestedScales nest(std::span<const float> scales) {
  NestedScales nested{.levels = dynamic_levels()};
  if (!scales.empty())
    nested.offset = static_cast<float>(std::accumulate(scales.begin(), scales.end(), 0.0) /
                                       static_cast<double>(scales.size()));
  for (; !scales.empty();
       scales = scales.subspan(std::min<std::size_t>(kNestedBlock, scales.size()))) {
    std::vector<float> block;
    for (const float scale : scales.first(std::min<std::size_t>(kNestedBlock, scales.size())))
      block.push_back(scale - nested.offset);
    const float largest = largest_magnitude(block);
    nested.scales.push_back(largest);
    for (const float value : block)
      nested.indices.push_back(nearest_level(largest > 0 ? value * (1.0f / largest) : 0.0f));
  }
  return nested;
}

}  // namespace

int nf4_index(float scaled) {
  return static_cast<int>(std::ranges::lower_bound(kMidpoints, scaled) - kMidpoints.begin());
}

Nf4Tensor quantize_nf4(std::span<const float> values, std::vector<std::int64_t> shape, DType dtype,
                       bool nested) {
  Nf4Tensor tensor{.dtype = dtype, .shape = std::move(shape)};
  if (bytes_needed(DType::f32, tensor.shape) != values.size() * sizeof(float))
    throw std::runtime_error(
        fmt::format("{} values do not fit the shape {}", values.size(), shape_text(tensor.shape)));
  tensor.packed.assign((values.size() + 1) / 2, 0);
  for (std::size_t at = 0; at < values.size(); at += kNf4Block) {
    const auto block = values.subspan(at, std::min<std::size_t>(kNf4Block, values.size() - at));
    float largest = largest_magnitude(block);
    const bool whole = block.size() == kNf4Block;
    if (!whole) largest = std::max(largest, kLeastScale);
    tensor.scales.push_back(largest);
    const float scale = std::max(largest, kLeastScale), inverse = 1.0f / scale;
    for (std::size_t i = 0; i < block.size(); ++i) {
      // The last partial block is divided and full blocks are multiplied, to match bitsandbytes bit
      // for bit.
      const float scaled = std::clamp(whole ? block[i] * inverse : block[i] / scale, -1.0f, 1.0f);
      tensor.packed[(at + i) / 2] |=
          static_cast<std::uint8_t>(nf4_index(scaled) << ((at + i) % 2 == 0 ? 4 : 0));
    }
  }
  // A tensor with an odd number of elements is padded with a zero.
  if (values.size() % 2 != 0) tensor.packed.back() |= static_cast<std::uint8_t>(nf4_index(0));
  if (nested) {
    tensor.nested = nest(tensor.scales);
    tensor.scales.clear();
  }
  return tensor;
}

std::vector<float> block_scales(const Nf4Tensor& tensor) {
  if (!tensor.nested) return tensor.scales;
  const NestedScales& nested = *tensor.nested;
  std::vector<float> scales(nested.indices.size());
  for (std::size_t i = 0; i < scales.size(); ++i)
    scales[i] = nested.levels[nested.indices[i]] * nested.scales[i / kNestedBlock] + nested.offset;
  return scales;
}

std::vector<float> dequantize_nf4(const Nf4Tensor& tensor) {
  const std::vector<float> scales = block_scales(tensor);
  const auto count = bytes_needed(DType::u8, tensor.shape).value_or(0);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const int index = (tensor.packed[i / 2] >> (i % 2 == 0 ? 4 : 0)) & 15;
    values[i] = kNf4Levels[static_cast<std::size_t>(index)] * scales[i / kNf4Block];
  }
  return values;
}

}  // namespace mgpu::checkpoint
