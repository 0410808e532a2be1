#include "runtime/kernels/attention_plans.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace mgpu::ops {
namespace {

// Shorter sequences do not fill a GPU one at a time, and flash attention computes them all at once.
constexpr std::int64_t kLeastAlone = 2048;
constexpr std::int64_t kLengthsPerOctave = 8;
// What a plan for several lengths covers beyond its first micro-batch: a length of twice the
// longest sequence costs nothing, twice the sequences 1 % to 8 % of the time, more tokens memory.
constexpr std::int64_t kReserveOfSequences = 2, kStepsOfSequences = 2, kStepsOfTokens = 4;
constexpr std::int64_t kMostEmpty = 4, kMostUnusedTokens = 2;  // times those of a micro-batch
constexpr std::int64_t kLeastPacked = 128;

std::int64_t round_up(std::int64_t x, std::int64_t step) {
  return (x + step - 1) / step * step;
}

// One of `steps` numbers between two powers of 2.
std::int64_t round_up_in_octave(std::int64_t x, std::int64_t steps) {
  const auto octave = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(x)));
  return round_up(x, std::max<std::int64_t>(octave / steps, 1));
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

AttentionShape packed_shape(std::span<const std::int32_t> starts, const AttentionShape& model) {
  auto shape = model;
  shape.sequences = static_cast<std::int64_t>(starts.size()) - 1;
  shape.tokens = starts.back();
  for (std::size_t i = 0; i + 1 < starts.size(); ++i)
    shape.length = std::max<std::int64_t>(shape.length, starts[i + 1] - starts[i]);
  return shape;
}

AttentionShape with_reserve(const AttentionShape& shape) {
  auto wider = shape;
  wider.sequences = round_up_in_octave(kReserveOfSequences * shape.sequences, kStepsOfSequences);
  wider.length = round_up_in_octave(std::max(shape.length, kLeastPacked), 1);
  wider.tokens = round_up_in_octave(std::max(shape.tokens, kLeastPacked), kStepsOfTokens);
  return wider;
}

bool covers(const AttentionShape& wider, const AttentionShape& shape) {
  return shape.sequences <= wider.sequences && shape.length <= wider.length &&
         shape.tokens <= wider.tokens && shape.padded == wider.padded &&
         shape.heads == wider.heads && shape.kv_heads == wider.kv_heads &&
         shape.head_dim == wider.head_dim;
}

std::optional<AttentionShape> PackedShapes::count(const AttentionShape& shape) {
  // In the order of the number of sequences.
  const auto found =
      std::ranges::find_if(shapes_, [&](const auto& other) { return covers(other, shape); });
  const bool is_near = found != shapes_.end() && found->sequences <= kMostEmpty * shape.sequences &&
                       found->tokens <= std::max(kMostUnusedTokens * shape.tokens, kLeastPacked);
  const auto wider = with_reserve(shape);
  if (!is_near && !refused_.contains(wider) && plans_.count(wider))
    return *shapes_.insert(wider).first;
  return found == shapes_.end() ? std::nullopt : std::optional(*found);
}

void PackedShapes::refuse(const AttentionShape& shape) {
  shapes_.erase(shape);
  refused_.insert(shape);
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
  if (equal && take({0, count, first, round_up(first, kAttentionStep)})) return result;
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    const auto length = length_of(i);
    if (equal || length < kLeastAlone ||
        !take({starts[i], 1, length, round_up_in_octave(length, kLengthsPerOctave)}))
      leave(i);
  }
  return result;
}

}  // namespace mgpu::ops
