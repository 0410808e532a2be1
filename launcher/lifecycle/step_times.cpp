#include "launcher/lifecycle/step_times.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace mgpu::launcher {
namespace {

constexpr double kSmoothing = 0.2;
constexpr double kSlower = 1.25;
constexpr double kLeastDifference = 1;  // ms; less is noise
constexpr int kPersistent = 20;
constexpr int kKnown = 3;  // reports; the first ones are slow on every rank

}  // namespace

std::optional<Straggler> StepTimes::record(const Heartbeat& heartbeat) {
  Rank& rank = ranks_[heartbeat.rank];
  if (heartbeat.step) {
    rank.step = std::max(rank.step, *heartbeat.step);
    rank.phase = kTrainingPhase;
  }
  if (heartbeat.phase) rank.phase = *heartbeat.phase;
  if (!heartbeat.busy_ms) return std::nullopt;
  ++rank.reports;
  const double weight = rank.reports <= kKnown ? 1 : kSmoothing;
  rank.busy_ms += weight * (*heartbeat.busy_ms - rank.busy_ms);
  const auto others = median_without(heartbeat.rank);
  const bool slower = rank.reports > kKnown && others && rank.busy_ms >= kSlower * *others &&
                      rank.busy_ms - *others >= kLeastDifference;
  rank.slow = slower ? rank.slow + 1 : 0;
  if (rank.slow < kPersistent || rank.named) return std::nullopt;
  rank.named = true;
  return Straggler{heartbeat.rank, rank.busy_ms, *others};
}

std::optional<double> StepTimes::median_without(int without) const {
  std::vector<double> times;
  for (const auto& [number, rank] : ranks_)
    if (number != without && rank.reports > kKnown) times.push_back(rank.busy_ms);
  if (times.empty()) return std::nullopt;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return *middle;
}

std::vector<RankProgress> StepTimes::progress() const {
  std::vector<RankProgress> all;
  for (const auto& [number, rank] : ranks_) {
    auto& one = all.emplace_back(RankProgress{number, rank.step, rank.phase});
    if (rank.reports == 0) continue;
    one.busy_ms = rank.busy_ms;
    if (const auto others = median_without(number); others && *others > 0)
      one.skew = rank.busy_ms / *others;
  }
  return all;
}

std::string straggler_line(const Straggler& straggler, std::string_view host) {
  return fmt::format(
      "rank {} on {} is a straggler: its own work takes {:.0f} ms per step, that of the other "
      "ranks "
      "{:.0f} ms ({:.2f} times as long); the others wait up to {:.0f} ms in every step",
      straggler.rank, host, straggler.busy_ms, straggler.others_ms,
      straggler.busy_ms / straggler.others_ms, straggler.busy_ms - straggler.others_ms);
}

}  // namespace mgpu::launcher
