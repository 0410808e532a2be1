#include "runtime/checkpoint/dynamic_levels.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace mgpu::checkpoint {
namespace {

// 2^bits + 1 points from 0.1 to 1. The second half is computed from the end and each point is
// rounded once, as in torch.linspace.
std::vector<float> boundaries(int bits) {
  const int parts = 1 << bits;
  const float step = (1.0f - 0.1f) / static_cast<float>(parts);
  std::vector<float> points;
  for (int i = 0; i <= parts; ++i)
    points.push_back(i < (parts + 1) / 2 ? std::fma(step, static_cast<float>(i), 0.1f)
                                         : std::fma(-step, static_cast<float>(parts - i), 1.0f));
  return points;
}

// Seven decades, each divided twice as finely as the one below it. Without a sign, its bit doubles
// the resolution.
std::array<float, 256> make_levels(bool with_negatives) {
  std::vector<float> levels = {0.0f, 1.0f};
  for (int decade = 0; decade < 7; ++decade) {
    const auto unit = static_cast<float>(std::pow(10.0, decade - 6));
    const std::vector<float> points = boundaries(with_negatives ? decade : decade + 1);
    for (std::size_t i = 0; i + 1 < points.size(); ++i) {
      const float level = unit * ((points[i] + points[i + 1]) / 2);
      levels.push_back(level);
      if (with_negatives) levels.push_back(-level);
    }
  }
  std::ranges::sort(levels);
  std::array<float, 256> all{};
  std::ranges::copy(levels, all.begin());
  return all;
}

}  // namespace

const std::array<float, 256>& dynamic_levels() {
  static const std::array<float, 256> levels = make_levels(true);
  return levels;
}

const std::array<float, 256>& positive_dynamic_levels() {
  static const std::array<float, 256> levels = make_levels(false);
  return levels;
}

}  // namespace mgpu::checkpoint
