#include "runtime/data/batch.hpp"

#include <algorithm>

namespace mgpu::data {

void BatchBuilder::reserve(std::size_t tokens, std::size_t sequences) {
  batch_.tokens.reserve(tokens);
  batch_.positions.reserve(tokens);
  batch_.targets.reserve(tokens);
  batch_.starts.reserve(sequences + 1);
}

void BatchBuilder::add(std::initializer_list<std::span<const std::int32_t>> parts) {
  std::int32_t length = 0;
  for (const auto part : parts) {
    batch_.tokens.insert(batch_.tokens.end(), part.begin(), part.end());
    for (std::size_t i = 0; i < part.size(); ++i) batch_.positions.push_back(length++);
  }
  batch_.targets.resize(batch_.tokens.size(), kNoTarget);
  batch_.starts.push_back(static_cast<std::int32_t>(batch_.tokens.size()));
  batch_.longest = std::max(batch_.longest, length);
}

void BatchBuilder::set_target(std::size_t position, std::int32_t target) {
  if (target == kNoTarget) return;
  const auto begin = static_cast<std::size_t>(batch_.starts[batch_.starts.size() - 2]);
  batch_.targets.at(begin + position) = target;
  ++batch_.target_tokens;
}

}  // namespace mgpu::data
