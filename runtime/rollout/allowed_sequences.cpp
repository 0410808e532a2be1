#include "runtime/rollout/allowed_sequences.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <unordered_set>

namespace mgpu::rollout {
namespace {

// The sequences with the same beginning: a range of the list of all, sorted up to there.
struct SameBeginning {
  std::size_t begin = 0, end = 0;
};

void check_sequences(std::span<const AllowedSequences::Tokens> sequences, std::int32_t end_token) {
  if (sequences.empty()) throw std::runtime_error("there is no allowed sequence");
  if (sequences.size() > std::numeric_limits<std::uint32_t>::max())
    throw std::runtime_error("there are too many allowed sequences");
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (sequences[i].empty())
      throw std::runtime_error(fmt::format("allowed sequence {} is empty", i + 1));
    for (const auto token : sequences[i]) {
      if (token < 0)
        throw std::runtime_error(
            fmt::format("allowed sequence {} contains the invalid token {}", i + 1, token));
      if (token == end_token)
        throw std::runtime_error(
            fmt::format("allowed sequence {} contains the end token {}, which is added to each one",
                        i + 1, end_token));
    }
  }
}

}  // namespace

AllowedSequences::AllowedSequences(std::span<const Tokens> sequences, std::int32_t end_token)
    : end_token_(end_token) {
  check_sequences(sequences, end_token);
  // Each entry: the token at the current depth in the upper half, the sequence in the lower half.
  std::vector<std::uint64_t> order;
  for (std::size_t i = 0; i < sequences.size(); ++i) order.push_back(i);
  const auto sequence_of = [](std::uint64_t entry) { return entry & 0xffffffffU; };
  std::vector<SameBeginning> level{{0, order.size()}}, next_level;
  for (std::size_t depth = 0; !level.empty(); ++depth) {
    next_level.clear();
    for (const auto [begin, end] : level) {
      edges_.push_back(static_cast<Node>(tokens_.size()));
      for (auto i = begin; i < end; ++i) {
        const auto& sequence = sequences[sequence_of(order[i])];
        const auto token = depth < sequence.size() ? sequence[depth] : end_token;
        order[i] = std::uint64_t{static_cast<std::uint32_t>(token)} << 32 | sequence_of(order[i]);
      }
      const auto at = [&](std::size_t i) { return order.begin() + static_cast<std::ptrdiff_t>(i); };
      std::sort(at(begin), at(end));
      for (auto i = begin; i < end;) {
        const auto token = static_cast<std::int32_t>(order[i] >> 32);
        const auto first = i;
        while (i < end && static_cast<std::int32_t>(order[i] >> 32) == token) ++i;
        tokens_.push_back(token);
        next_level.push_back(token == end_token ? SameBeginning{} : SameBeginning{first, i});
        if (token != end_token) continue;
        ++size_;
        longest_ = std::max(longest_, static_cast<std::int64_t>(depth) + 1);
        for (auto repeated = first + 1; repeated < i; ++repeated)
          repetitions_.push_back({sequence_of(order[repeated]), sequence_of(order[first])});
      }
    }
    std::swap(level, next_level);
  }
  edges_.push_back(static_cast<Node>(tokens_.size()));
  std::ranges::sort(repetitions_, {}, &Repetition::sequence);
  std::unordered_set<std::int32_t> different;
  for (const auto token : tokens_) different.insert(token);
  different.erase(end_token);
  vocabulary_.assign(different.begin(), different.end());
  std::ranges::sort(vocabulary_);
}

AllowedSequences::Node AllowedSequences::after(Node node, std::int32_t token) const {
  const auto allowed = next(node);
  const auto found = std::ranges::lower_bound(allowed, token);
  if (found == allowed.end() || *found != token) return kNotAllowed;
  return edges_[node] + static_cast<Node>(found - allowed.begin()) + 1;
}

}  // namespace mgpu::rollout
