#include "runtime/model/rope.hpp"

#include <cmath>
#include <numbers>

namespace mgpu::model {
namespace {

// Llama 3's scaling: long wavelengths are stretched by `factor`, short ones are kept, and those in
// between are interpolated.
float stretch_llama3(float frequency, const Rope& rope) {
  const double wave = 2 * std::numbers::pi / frequency;
  const auto original = static_cast<double>(rope.original_max_position);
  if (wave > original / rope.low_freq_factor) return static_cast<float>(frequency / rope.factor);
  if (wave < original / rope.high_freq_factor) return frequency;
  const double smooth =
      (original / wave - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return static_cast<float>((1 - smooth) * frequency / rope.factor + smooth * frequency);
}

}  // namespace

std::vector<float> rope_frequencies(const Rope& rope, std::int64_t head_dim) {
  std::vector<float> result;
  for (std::int64_t i = 0; i < head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(head_dim);
    float frequency = 1.0F / std::pow(static_cast<float>(rope.theta), exponent);
    if (rope.kind == Rope::Kind::linear) frequency /= static_cast<float>(rope.factor);
    if (rope.kind == Rope::Kind::llama3) frequency = stretch_llama3(frequency, rope);
    result.push_back(frequency);
  }
  return result;
}

}  // namespace mgpu::model
