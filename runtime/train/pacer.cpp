#include "runtime/train/pacer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <stdexcept>

namespace mgpu::train {

Pacer::Pacer(Sharding sharding, std::vector<double> given, int world, std::size_t ahead)
    : sharding_(sharding), ahead_(ahead), weights_(std::move(given)) {
  const auto ranks = static_cast<std::size_t>(world);
  if (sharding_ == Sharding::weighted && weights_.size() != ranks) {
    throw std::runtime_error(fmt::format(
        "batch_sharding: weighted needs one gpu_weights entry per rank: {} ranks, {} weights",
        ranks, weights_.size()));
  }
  if (sharding_ == Sharding::uniform) weights_.clear();
  if (sharding_ == Sharding::adaptive && weights_.size() != ranks) weights_.assign(ranks, 1.0);
}

std::vector<double> Pacer::weights(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  if (sharding_ != Sharding::adaptive) return weights_;
  const auto later = from_step_.upper_bound(step);
  return later == from_step_.begin() ? std::vector<double>(weights_.size(), 1.0)
                                     : std::prev(later)->second;
}

std::string Pacer::shares_line(std::int64_t step) {
  auto shares = weights(step);
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
  const auto moved = [](double now, double before) {
    return std::abs(now - before) > kReportedChange * before;
  };
  if (reported_.size() == shares.size() &&
      std::equal(shares.begin(), shares.end(), reported_.begin(), std::not_fn(moved)))
    return {};
  reported_ = shares;
  return fmt::format("work shares by rank: {:.3f}", fmt::join(shares, " "));
}

void Pacer::record_times(std::int64_t step, const std::vector<double>& seconds,
                         const std::vector<double>& costs) {
  if (sharding_ != Sharding::adaptive) return;
  const std::lock_guard lock(mutex_);
  std::vector<double> speed(weights_.size(), 0.0);
  for (std::size_t i = 0; i < speed.size(); ++i) {
    if (seconds[i] <= 0 || costs[i] <= 0) return;  // an empty share has no speed
    speed[i] = costs[i] / seconds[i];
  }
  const double mean =
      std::accumulate(speed.begin(), speed.end(), 0.0) / static_cast<double>(speed.size());
  for (std::size_t i = 0; i < speed.size(); ++i) {
    const double seen = std::clamp(speed[i] / mean, kSlowest, kFastest);
    weights_[i] += kSmoothing * (seen - weights_[i]);
  }
  from_step_[step + static_cast<std::int64_t>(ahead_) + 4] = weights_;
  // Drop the weights of steps that no loader can request any more.
  while (from_step_.size() > 2 * ahead_ + 8) from_step_.erase(from_step_.begin());
}

}  // namespace mgpu::train
