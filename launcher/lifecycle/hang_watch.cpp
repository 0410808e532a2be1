#include "launcher/lifecycle/hang_watch.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace mgpu::launcher {
namespace {

using std::chrono::milliseconds;
using namespace std::chrono_literals;

constexpr int kFirstSteps = 3;    // compilation, caches and allocators make them slow
constexpr int kLeastSamples = 5;  // of each rank, from which a limit for steps follows
constexpr int kSlowPhases = 10;   // fixed limits
constexpr milliseconds kLeastWithPhases = 5min, kLeast = 30min;
// For ranks of which none stands out, if there are more elsewhere: longer than evidence takes.
constexpr milliseconds kPatience = 15s;
constexpr std::size_t kMostPhases = 64, kLongestPhase = 64;

std::string seconds_text(milliseconds time) {
  return fmt::format("{:.{}f} s", double(time.count()) / 1000, time < 10s ? 1 : 0);
}

std::string ranks_text(const std::vector<int>& ranks) {
  constexpr std::size_t kShown = 8;
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  const auto shown = std::min(ranks.size(), kShown);
  return fmt::format("ranks {}{}",
                     fmt::join(ranks.begin(), ranks.begin() + static_cast<long>(shown), ", "),
                     shown < ranks.size() ? fmt::format(" and {} more", ranks.size() - shown) : "");
}

std::string steps_text(std::int64_t steps) {
  return steps < 0 ? "no step" : fmt::format("{} step{}", steps, steps == 1 ? "" : "s");
}

}  // namespace

bool is_phase(std::string_view text) {
  return !text.empty() && text.size() <= kLongestPhase && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
}

void HangWatch::begin_attempt(const std::string& host) {
  host_ = host;
  ranks_.clear();
}

void HangWatch::record(const Heartbeat& heartbeat, Time now) {
  const auto [found, is_new] = ranks_.try_emplace(heartbeat.rank);
  Rank& rank = found->second;
  if (is_new) rank.since = now;
  const Rank before = rank;
  if (heartbeat.phase && *heartbeat.phase != kTrainingPhase) names_phases_ = true;
  // A step ends any other phase.
  if (heartbeat.step) rank.phase = kTrainingPhase;
  if (heartbeat.phase) rank.phase = *heartbeat.phase;
  const bool stepped = heartbeat.step && *heartbeat.step != rank.step;
  if (stepped) {
    // A program that trains again, or goes back to a checkpoint, counts from a lower number.
    if (rank.first_step < 0 || *heartbeat.step < rank.step) rank.first_step = *heartbeat.step;
    rank.step = *heartbeat.step;
  }
  if (!stepped && rank.phase == before.phase) return;
  if (!is_new) learn(before, now - before.since);
  rank.since = now;
}

void HangWatch::rank_replaced(int rank, Time now) {
  if (ranks_.empty()) return;
  for (auto& [number, other] : ranks_) {
    other.since = now;
    other.first_step = other.step;
  }
  ranks_[rank] = {.since = now, .phase = kTrainingPhase};
}

HangWatch::Time HangWatch::patience(Time limit) {
  return std::max<Time>(kPatience, limit / 4);
}

bool HangWatch::in_first_steps(const Rank& rank) const {
  return rank.step < 0 || rank.step - rank.first_step < kFirstSteps - 1;
}

void HangWatch::learn(const Rank& rank, Time duration) {
  if (in_first_steps(rank)) return;
  if (learned_.size() >= kMostPhases && !learned_.contains(rank.phase)) return;
  auto& durations = learned_[rank.phase];
  ++durations.count;
  durations.total += duration;
  durations.longest = std::max(durations.longest, duration);
}

std::optional<HangWatch::Time> HangWatch::limit_of(const Rank& rank) const {
  const bool trains = rank.phase == kTrainingPhase;
  if (fixed_) return trains && !in_first_steps(rank) ? *fixed_ : kSlowPhases * *fixed_;
  if (in_first_steps(rank)) return std::nullopt;
  if (trains) return limit_of_a_step();
  const auto found = learned_.find(rank.phase);
  if (found == learned_.end()) return std::nullopt;
  return std::max<Time>(kLeast, 5 * found->second.longest);
}

std::optional<HangWatch::Time> HangWatch::limit_of_a_step() const {
  if (fixed_) return fixed_;
  const auto found = learned_.find(kTrainingPhase);
  if (found == learned_.end()) return std::nullopt;
  const auto& [count, total, longest] = found->second;
  if (count < kLeastSamples * static_cast<int>(ranks_.size())) return std::nullopt;
  return std::max({names_phases_ ? kLeastWithPhases : kLeast, 20 * total / count, 3 * longest});
}

std::optional<HangWatch::Time> HangWatch::limit(bool suspended) const {
  if (suspended) return limit_of_a_step();
  Time limit{0};
  for (const auto& [number, rank] : ranks_) {
    const auto own = limit_of(rank);
    if (!own) return std::nullopt;
    limit = std::max(limit, *own);
  }
  return limit;
}

bool HangWatch::overdue(Time now, bool suspended) const {
  const auto most = watching() ? limit(suspended) : std::nullopt;
  return most && std::ranges::none_of(
                     ranks_, [&](const auto& entry) { return now - entry.second.since < *most; });
}

std::optional<Hang> HangWatch::find(Time now, const std::vector<int>& suspended) const {
  if (!overdue(now, !suspended.empty())) return std::nullopt;
  const auto most = limit(!suspended.empty());
  Hang hang{.host = host_, .limit = *most, .learned = !fixed_};
  Time last{0};
  for (const auto& [number, rank] : ranks_) {
    last = std::max(last, rank.since);
    hang.highest_step = std::max(hang.highest_step, rank.step);
  }
  hang.lasted = now - last;
  find_odd_rank(suspended, hang);
  if (hang.why == Hang::Evidence::none && !host_.empty() && hang.lasted < *most + patience(*most))
    return std::nullopt;
  return hang;
}

void HangWatch::find_odd_rank(const std::vector<int>& suspended, Hang& hang) const {
  using Evidence = Hang::Evidence;
  std::map<std::string, int> phases;
  std::int64_t lowest = hang.highest_step;
  for (const auto& [number, rank] : ranks_) {
    ++phases[rank.phase];
    lowest = std::min(lowest, rank.step);
  }
  const auto usual = std::ranges::max_element(
      phases, [](const auto& a, const auto& b) { return a.second < b.second; });
  const bool divided = phases.size() > 1 && usual->second * 2 > static_cast<int>(ranks_.size());
  hang.why = !suspended.empty()           ? Evidence::suspended
             : lowest < hang.highest_step ? Evidence::behind
             : divided                    ? Evidence::other_phase
                                          : Evidence::none;
  if (hang.why == Evidence::suspended) hang.like = suspended;
  for (const auto& [number, rank] : ranks_)
    if ((hang.why == Evidence::behind && rank.step == lowest) ||
        (hang.why == Evidence::other_phase && rank.phase != usual->first) ||
        hang.why == Evidence::none)
      hang.like.push_back(number);
  const auto since = [&](int number) {
    const auto found = ranks_.find(number);
    return found == ranks_.end() ? Time::min() : found->second.since;
  };
  hang.rank = *std::ranges::min_element(hang.like, {}, since);
  if (const auto found = ranks_.find(hang.rank); found != ranks_.end()) {
    hang.step = found->second.step;
    hang.phase = found->second.phase;
  }
}

Cause cause_of(const Hang& hang) {
  using Evidence = Hang::Evidence;
  const auto ranks = ranks_text(hang.like);
  const bool many = hang.like.size() > 1;
  std::string who, advice;
  switch (hang.why) {
    case Evidence::suspended:
      who = fmt::format("{} {} suspended by a signal or a debugger", ranks, many ? "are" : "is");
      advice = "find out what suspended it; kill -CONT PID resumes a process";
      break;
    case Evidence::behind:
      who = fmt::format("{} {} completed {}, other ranks {}", ranks, many ? "have" : "has",
                        steps_text(hang.step), hang.highest_step);
      break;
    case Evidence::other_phase:
      who = fmt::format("{} {} in phase {}, most other ranks are not", ranks, many ? "are" : "is",
                        hang.phase);
      break;
    case Evidence::none:
      who = "no rank stands out";
      if (!hang.activity.empty()) break;
      who = fmt::format("no rank stands out: {} {} completed {}; rank {} is in phase {}", ranks,
                        many ? "have" : "has", steps_text(hang.step), hang.rank, hang.phase);
      break;
  }
  const bool also = hang.why == Evidence::behind || hang.why == Evidence::other_phase;
  if (!hang.reason.empty()) who = also ? fmt::format("{}; {}", who, hang.reason) : hang.reason;
  if (advice.empty())
    advice = fmt::format(
        "find out what this rank was waiting for{}; if it was only slow, set a longer "
        "--hang-timeout or {} (docs/launcher.md, \"Hangs\")",
        hang.evidence.empty() ? "" : fmt::format(" (see {}/summary.txt)", hang.evidence),
        hang.activity.empty() ? "report its long phases" : "choose other signs of activity");
  return {Cause::Kind::hang,
          fmt::format("hang: no rank{} {} for {} (limit {}, {}); {}",
                      hang.host.empty() ? "" : fmt::format(" on {}", hang.host),
                      hang.activity.empty() ? "made progress" : hang.activity,
                      seconds_text(hang.lasted), seconds_text(hang.limit),
                      hang.learned ? "learned from earlier steps" : "from --hang-timeout", who),
          advice};
}

}  // namespace mgpu::launcher
