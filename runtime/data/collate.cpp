#include "runtime/data/collate.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include <fmt/format.h>

namespace mgpu::data {

namespace {

void append(const Sequence& sequence, Batch& batch) {
  const std::size_t length = sequence.ids.size();
  batch.tokens.insert(batch.tokens.end(), sequence.ids.begin(), sequence.ids.end());
  for (std::size_t i = 0; i < length; ++i) {
    batch.positions.push_back(static_cast<std::int32_t>(i));
    const std::int32_t target = i + 1 < length ? sequence.label(i + 1) : kNoTarget;
    batch.targets.push_back(target);
    if (target != kNoTarget) ++batch.target_tokens;
  }
  batch.starts.push_back(static_cast<std::int32_t>(batch.tokens.size()));
  batch.longest = std::max(batch.longest, static_cast<std::int32_t>(length));
}

}  // namespace

Batch collate(const Dataset& dataset, std::span<const std::uint32_t> examples) {
  if (examples.empty())
    return {
        .tokens = {0}, .positions = {0}, .targets = {kNoTarget}, .starts = {0, 1}, .longest = 1};
  std::size_t tokens = 0;
  for (const std::uint32_t example : examples) tokens += dataset.lengths()[example];
  if (tokens > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
    throw std::runtime_error(fmt::format(
        "a micro-batch of {} tokens is too large; lower the batch size or max_length", tokens));
  Batch batch;
  batch.tokens.reserve(tokens);
  batch.positions.reserve(tokens);
  batch.targets.reserve(tokens);
  batch.starts.reserve(examples.size() + 1);
  batch.starts.push_back(0);
  for (const std::uint32_t example : examples) append(dataset[example], batch);
  return batch;
}

}  // namespace mgpu::data
