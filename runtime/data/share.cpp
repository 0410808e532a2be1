#include "runtime/data/share.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <stdexcept>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"

namespace mgpu::data {

namespace {

// A rank or a micro-batch that items are assigned to.
struct Recipient {
  double weight = 1;
  double load = 0;
  std::vector<std::uint32_t> items;

  double finish_with(double cost) const { return (load + cost) / weight; }
};

// Assigns the most expensive item first, each to the recipient with space that would finish first.
void assign(std::vector<std::uint32_t> items, std::span<const double> costs, std::size_t max_items,
            std::vector<Recipient>& recipients) {
  std::stable_sort(items.begin(), items.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return costs[a] > costs[b]; });
  for (const std::uint32_t item : items) {
    Recipient* best = nullptr;
    for (Recipient& recipient : recipients) {
      if (recipient.weight <= 0 || recipient.items.size() >= max_items) continue;
      if (!best || recipient.finish_with(costs[item]) < best->finish_with(costs[item]))
        best = &recipient;
    }
    best->load += costs[item];
    best->items.push_back(item);
  }
  for (Recipient& recipient : recipients) std::sort(recipient.items.begin(), recipient.items.end());
}

std::vector<Recipient> ranks_of(const ShareOptions& options) {
  const auto& weights = options.weights;
  std::vector<Recipient> ranks(static_cast<std::size_t>(options.world));
  if (weights.empty()) return ranks;
  const bool good = std::all_of(weights.begin(), weights.end(),
                                [](double w) { return std::isfinite(w) && w >= 0; });
  if (weights.size() != ranks.size() || !good ||
      *std::max_element(weights.begin(), weights.end()) <= 0)
    throw rendezvous::InputError(
        fmt::format("the weights [{}] are invalid for {} ranks: need one per rank, none negative "
                    "and at least one positive",
                    fmt::join(weights, ", "), options.world));
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i].weight = weights[i];
  return ranks;
}

// The number of micro-batches that the rank with the largest share of the items needs.
std::int64_t micro_batches_needed(std::size_t items, const std::vector<Recipient>& ranks,
                                  std::int64_t max_items) {
  double sum = 0, largest = 0;
  for (const Recipient& rank : ranks) {
    sum += rank.weight;
    largest = std::max(largest, rank.weight);
  }
  const double part = std::ceil(static_cast<double>(items) * (largest / sum) - 1e-9);
  return static_cast<std::int64_t>(std::ceil(part / static_cast<double>(max_items)));
}

}  // namespace

Shares share(std::span<const double> costs, const ShareOptions& options) {
  if (options.world < 1 || options.max_items < 1)
    throw std::logic_error("share: world and max_items must be at least 1");
  std::vector<Recipient> ranks = ranks_of(options);
  const std::int64_t micro_batches = std::max<std::int64_t>(
      {1, options.min_micro_batches, micro_batches_needed(costs.size(), ranks, options.max_items)});

  std::vector<std::uint32_t> all(costs.size());
  std::iota(all.begin(), all.end(), 0U);
  assign(all, costs, static_cast<std::size_t>(micro_batches * options.max_items), ranks);

  Shares shares;
  for (const Recipient& rank : ranks) {
    std::vector<Recipient> batches(static_cast<std::size_t>(micro_batches));
    assign(rank.items, costs, static_cast<std::size_t>(options.max_items), batches);
    auto& out = shares.emplace_back();
    for (Recipient& batch : batches) out.push_back(std::move(batch.items));
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
