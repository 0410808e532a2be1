#include "launcher/lifecycle/activity_watch.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace mgpu::launcher {
namespace {

constexpr int kBusyPercent = 5;  // of a core, or of a GPU
// The kernel counts CPU time in steps of 10 ms, so a single one may be hardly anything.
constexpr std::chrono::milliseconds kLeastCpu{20};

// "wrote output or used a CPU".
std::string text_of(const ActivitySigns& signs) {
  std::vector<std::string> parts;
  if (signs.output) parts.emplace_back("wrote output");
  if (signs.cpu) parts.emplace_back("used a CPU");
  if (signs.gpu) parts.emplace_back("used a GPU");
  return fmt::format("{}", fmt::join(parts, " or "));
}

}  // namespace

ActivityWatch::ActivityWatch(ActivitySigns signs, std::optional<Time> limit)
    : signs_(signs), limit_(limit.value_or(Time(0))), enabled_(signs.any() && limit_ > Time(0)) {}

void ActivityWatch::begin_attempt(const std::string& host, Time now) {
  host_ = host;
  ranks_.clear();
  began_ = sampled_ = rank_active_ = gpu_active_ = now;
  job_idle_ = Time(0);
}

void ActivityWatch::record(const ActivitySample& sample, Time now) {
  const bool is_first = sampled_ == began_;
  const auto passed = now - sampled_;
  sampled_ = now;
  const bool only_gpu = signs_.gpu && !signs_.output && !signs_.cpu;
  const bool gpu_busy = sample.gpu_percent < 0 ? only_gpu : sample.gpu_percent >= kBusyPercent;
  if (signs_.gpu && gpu_busy) gpu_active_ = now;
  std::erase_if(ranks_, [&](const auto& entry) {  // it has exited
    return std::ranges::find(sample.ranks, entry.first, &ActivitySample::Rank::rank) ==
           sample.ranks.end();
  });
  for (const auto& [number, output_bytes, cpu] : sample.ranks) {
    const auto [found, is_new] = ranks_.try_emplace(number, Rank{.active = began_});
    Rank& rank = found->second;
    // A replaced process begins at 0 again.
    const bool wrote = output_bytes != rank.output_bytes;
    const bool computed =
        cpu < rank.cpu || cpu - rank.cpu >= std::max<Time>(kLeastCpu, passed * kBusyPercent / 100);
    // A process that takes the place of a lost one is not idle yet.
    if ((is_new && !is_first) || (signs_.output && wrote) || (signs_.cpu && computed))
      rank.active = rank_active_ = now;
    rank.output_bytes = output_bytes;
    rank.cpu = cpu;
  }
}

ActivityWatch::Time ActivityWatch::idle(Time now) const {
  return now - std::max({began_, rank_active_, gpu_active_});
}

bool ActivityWatch::overdue(Time now) const {
  return enabled_ && !ranks_.empty() && idle(now) >= limit_ &&
         (host_.empty() || job_idle_ >= limit_);
}

std::optional<Hang> ActivityWatch::find(Time now, const std::vector<int>& suspended) const {
  if (!overdue(now)) return std::nullopt;
  Hang hang{.host = host_, .lasted = idle(now), .limit = limit_, .activity = text_of(signs_)};
  hang.why = suspended.empty() ? Hang::Evidence::none : Hang::Evidence::suspended;
  hang.like = suspended;
  if (suspended.empty()) {
    if (!host_.empty() && hang.lasted < limit_ + HangWatch::patience(limit_)) return std::nullopt;
    for (const auto& [number, rank] : ranks_) hang.like.push_back(number);
  }
  hang.rank = *std::ranges::min_element(hang.like, {}, [&](int number) {
    const auto found = ranks_.find(number);
    return found == ranks_.end() ? Time::min() : found->second.active;
  });
  return hang;
}

}  // namespace mgpu::launcher
