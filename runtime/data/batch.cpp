#include "runtime/data/batch.hpp"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace mgpu::data {
namespace {

struct Sequences {
  std::size_t begin = 0, end = 0;
};

// Where to divide at least two sequences: the start of a sequence that is nearest to the middle.
std::size_t middle_of(const Batch& batch, Sequences all) {
  const auto start = [&](std::size_t i) { return static_cast<std::int64_t>(batch.starts[i]); };
  const auto distance = [&](std::size_t i) {
    return std::abs(2 * start(i) - start(all.begin) - start(all.end));
  };
  auto best = all.begin + 1;
  for (auto i = best + 1; i < all.end; ++i)
    if (distance(i) < distance(best)) best = i;
  return best;
}

}  // namespace

Batch batch_without_work() {
  return {.tokens = {0}, .positions = {0}, .targets = {kNoTarget}, .starts = {0, 1}, .longest = 1};
}

Batch piece_of(const Batch& batch, std::size_t piece, std::size_t pieces) {
  if (!batch.branches.empty()) throw std::logic_error("a batch with branches has no pieces");
  Sequences kept{0, batch.starts.size() - 1};
  for (auto half = pieces / 2; half > 0; half /= 2) {
    const bool second = (piece & half) != 0;
    if (kept.end - kept.begin < 2) {
      if (second) return batch_without_work();
      continue;
    }
    const auto middle = middle_of(batch, kept);
    (second ? kept.begin : kept.end) = middle;
  }
  BatchBuilder builder;
  for (auto i = kept.begin; i < kept.end; ++i) {
    const auto begin = static_cast<std::size_t>(batch.starts[i]);
    const auto size = static_cast<std::size_t>(batch.starts[i + 1]) - begin;
    builder.add({std::span(batch.tokens).subspan(begin, size)});
    for (std::size_t at = 0; at < size; ++at) builder.set_target(at, batch.targets[begin + at]);
  }
  return builder.take();
}

void BatchBuilder::reserve(std::size_t tokens, std::size_t sequences) {
  batch_.tokens.reserve(tokens);
  batch_.positions.reserve(tokens);
  batch_.targets.reserve(tokens);
  batch_.starts.reserve(sequences + 1);
}

void BatchBuilder::add(std::initializer_list<std::span<const std::int32_t>> parts) {
  if (!batch_.branches.empty()) throw std::logic_error("a sequence follows a branch");
  append(parts, 0);
}

void BatchBuilder::add_branch(std::size_t beginning,
                              std::initializer_list<std::span<const std::int32_t>> parts) {
  auto& branches = batch_.branches;
  const auto sequences = batch_.starts.size() - 1;
  const auto beginnings = branches.empty() ? sequences : static_cast<std::size_t>(branches.front());
  const bool first = beginning == branches.size();
  if (beginning >= beginnings || (!first && beginning + 1 != branches.size()))
    throw std::logic_error("a branch does not follow those of the beginnings before its own");
  if (first) branches.push_back(static_cast<std::int32_t>(sequences));
  append(parts, batch_.starts[beginning + 1] - batch_.starts[beginning]);
}

void BatchBuilder::append(std::initializer_list<std::span<const std::int32_t>> parts,
                          std::int32_t position) {
  for (const auto part : parts) {
    batch_.tokens.insert(batch_.tokens.end(), part.begin(), part.end());
    for (std::size_t i = 0; i < part.size(); ++i) batch_.positions.push_back(position++);
  }
  batch_.targets.resize(batch_.tokens.size(), kNoTarget);
  const auto end = static_cast<std::int32_t>(batch_.tokens.size());
  batch_.longest = std::max(batch_.longest, end - batch_.starts.back());
  batch_.starts.push_back(end);
}

void BatchBuilder::set_target(std::size_t position, std::int32_t target) {
  if (target == kNoTarget) return;
  const auto begin = static_cast<std::size_t>(batch_.starts[batch_.starts.size() - 2]);
  batch_.targets.at(begin + position) = target;
  ++batch_.target_tokens;
}

Batch BatchBuilder::take() {
  auto& branches = batch_.branches;
  if (!branches.empty()) {
    if (static_cast<std::int32_t>(branches.size()) != branches.front())
      throw std::logic_error("a beginning has no branch");
    branches.push_back(static_cast<std::int32_t>(batch_.starts.size()) - 1);
  }
  return std::move(batch_);
}

}  // namespace mgpu::data
