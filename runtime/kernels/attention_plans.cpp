#include "runtime/kernels/attention_plans.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace mgpu::ops {
namespace {

// If all sequences of a micro-batch have one length, it is padded to a multiple of this: such a
// micro-batch needs one plan only.
constexpr std::int64_t kStep = 64;
// Shorter sequences do not fill a GPU one at a time, and flash attention computes them all at once.
constexpr std::int64_t kLeastAlone = 2048;
constexpr std::int64_t kLengthsPerOctave = 8;

std::int64_t round_up(std::int64_t x, std::int64_t step) {
  return (x + step - 1) / step * step;
}

std::int64_t length_alone(std::int64_t length) {
  const auto octave = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(length)));
  return round_up(length, octave / kLengthsPerOctave);
}

}  // namespace

bool AttentionPlans::count(const AttentionShape& shape) {
  if (plans_.contains(shape)) return true;
  if (plans_.size() >= limits_.most) return false;
  if (plans_.size() >= limits_.at_once) {
    if (counts_.size() >= limits_.counted && !counts_.contains(shape)) counts_.clear();
    if (++counts_[shape] < limits_.often) return false;
  }
  counts_.erase(shape);
  plans_.insert(shape);
  if (plans_.size() >= limits_.most) counts_.clear();
  return true;
}

AttentionDivision divide_attention(std::span<const std::int32_t> starts,
                                   const AttentionShape& model, AttentionPlans& plans) {
  AttentionDivision result;
  const auto count = static_cast<std::int64_t>(starts.size()) - 1;
  const auto length_of = [&](std::size_t i) -> std::int64_t { return starts[i + 1] - starts[i]; };
  // Whether cuDNN computes this part, which then is in the result.
  const auto take = [&](const CudnnPart& part) {
    auto shape = model;
    shape.sequences = part.count;
    shape.length = part.computed;
    shape.padded = part.computed != part.length;
    if (!plans.count(shape)) return false;
    result.cudnn.push_back(part);
    return true;
  };
  const auto leave = [&](std::size_t i) {
    if (result.rest_starts.empty()) result.rest_starts.push_back(0);
    const auto begin = static_cast<std::ptrdiff_t>(result.rest.size());
    result.rest.resize(result.rest.size() + static_cast<std::size_t>(length_of(i)));
    std::iota(result.rest.begin() + begin, result.rest.end(), starts[i]);
    result.rest_starts.push_back(static_cast<std::int32_t>(result.rest.size()));
    result.rest_longest = std::max(result.rest_longest, length_of(i));
  };
  const auto first = length_of(0);
  bool equal = true;
  for (std::size_t i = 1; i + 1 < starts.size(); ++i) equal = equal && length_of(i) == first;
  if (equal && take({0, count, first, round_up(first, kStep)})) return result;
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    const auto length = length_of(i);
    if (equal || length < kLeastAlone || !take({starts[i], 1, length, length_alone(length)}))
      leave(i);
  }
  return result;
}

}  // namespace mgpu::ops
