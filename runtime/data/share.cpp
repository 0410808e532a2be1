#include "runtime/data/share.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <stdexcept>

#include <fmt/format.h>

namespace mgpu::data {

namespace {

// One that takes items: a rank, or a micro-batch of a rank.
struct Taker {
  double weight = 1;
  double load = 0;
  std::vector<std::uint32_t> items;

  double end_with(double cost) const { return (load + cost) / weight; }
};

// The dearest first, each to the taker that would be done first among those with room.
void deal(std::vector<std::uint32_t> items, std::span<const double> costs, std::size_t room,
          std::vector<Taker>& takers) {
  std::stable_sort(items.begin(), items.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return costs[a] > costs[b]; });
  for (const std::uint32_t item : items) {
    Taker* best = nullptr;
    for (Taker& taker : takers) {
      if (taker.weight <= 0 || taker.items.size() >= room) continue;
      if (!best || taker.end_with(costs[item]) < best->end_with(costs[item])) best = &taker;
    }
    best->load += costs[item];
    best->items.push_back(item);
  }
  for (Taker& taker : takers) std::sort(taker.items.begin(), taker.items.end());
}

std::vector<Taker> ranks_of(const ShareOptions& options) {
  const auto& weights = options.weights;
  std::vector<Taker> ranks(static_cast<std::size_t>(options.world));
  if (weights.empty()) return ranks;
  const bool good = std::all_of(weights.begin(), weights.end(),
                                [](double w) { return std::isfinite(w) && w >= 0; });
  if (weights.size() != ranks.size() || !good ||
      *std::max_element(weights.begin(), weights.end()) <= 0)
    throw std::runtime_error(
        fmt::format("the weights [{}] are not one a rank of {}, at least 0 and some above it",
                    fmt::join(weights, ", "), options.world));
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i].weight = weights[i];
  return ranks;
}

// Micro-batches that the rank with the largest part of the items needs.
std::int64_t micro_batches_needed(std::size_t items, const std::vector<Taker>& ranks,
                                  std::int64_t max_items) {
  double sum = 0, largest = 0;
  for (const Taker& rank : ranks) {
    sum += rank.weight;
    largest = std::max(largest, rank.weight);
  }
  const double part = std::ceil(static_cast<double>(items) * (largest / sum) - 1e-9);
  return static_cast<std::int64_t>(std::ceil(part / static_cast<double>(max_items)));
}

}  // namespace

Shares share(std::span<const double> costs, const ShareOptions& options) {
  if (options.world < 1 || options.max_items < 1)
    throw std::logic_error("share: world and max_items are at least 1");
  std::vector<Taker> ranks = ranks_of(options);
  const std::int64_t micro_batches = std::max<std::int64_t>(
      {1, options.micro_batches, micro_batches_needed(costs.size(), ranks, options.max_items)});

  std::vector<std::uint32_t> all(costs.size());
  std::iota(all.begin(), all.end(), 0U);
  deal(all, costs, static_cast<std::size_t>(micro_batches * options.max_items), ranks);

  Shares shares;
  for (const Taker& rank : ranks) {
    std::vector<Taker> batches(static_cast<std::size_t>(micro_batches));
    deal(rank.items, costs, static_cast<std::size_t>(options.max_items), batches);
    auto& out = shares.emplace_back();
    for (Taker& batch : batches) out.push_back(std::move(batch.items));
  }
  return shares;
}

double cost_of(std::span<const std::uint32_t> examples, std::span<const std::uint32_t> lengths,
               double quadratic) {
  double tokens = 0, pairs = 0;
  for (const std::uint32_t example : examples) {
    const double length = lengths[example];
    tokens += length;
    pairs += length * length;
  }
  return tokens + quadratic * pairs;
}

}  // namespace mgpu::data
