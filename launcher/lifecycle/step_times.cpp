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

bool is_slower(double busy_ms, double others_ms) {
  return busy_ms >= kSlower * others_ms && busy_ms - others_ms >= kLeastDifference;
}

// Several steps may have been done since the last report. A program that trains again, or goes back
// to a checkpoint, counts from a lower number.
void StepTimes::record_step(Rank& rank, std::int64_t step, Time now) {
  if (step != rank.step) {
    if (rank.stepped && rank.step >= 0 && step > rank.step) {
      const double time = std::chrono::duration<double, std::milli>(now - *rank.stepped).count() /
                          static_cast<double>(step - rank.step);
      rank.step_ms = rank.step_ms ? *rank.step_ms + kSmoothing * (time - *rank.step_ms) : time;
    }
    rank.step = step;
    rank.stepped = now;
  }
  rank.phase = kTrainingPhase;
}

std::optional<Straggler> StepTimes::record(const Heartbeat& heartbeat, Time now) {
  Rank& rank = ranks_[heartbeat.rank];
  if (heartbeat.step) record_step(rank, *heartbeat.step, now);
  if (heartbeat.phase) rank.phase = *heartbeat.phase;
  if (rank.phase != kTrainingPhase) rank.stepped.reset();
  if (!heartbeat.busy_ms) return std::nullopt;
  ++rank.reports;
  const double weight = rank.reports <= kKnown ? 1 : kSmoothing;
  rank.busy_ms += weight * (*heartbeat.busy_ms - rank.busy_ms);
  const auto others = median_without(heartbeat.rank);
  const bool slower = rank.reports > kKnown && others && is_slower(rank.busy_ms, *others);
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
    auto& one = all.emplace_back(RankProgress{number, rank.step, rank.phase, rank.step_ms});
    one.straggler = rank.slow >= kPersistent;
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
