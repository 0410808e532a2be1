#include "launcher/nodes/job_progress.hpp"

#include <algorithm>

namespace mgpu::launcher {
namespace {

constexpr int kPersistent = 5;

}  // namespace

std::vector<Straggler> JobProgress::record(NodeId node, const std::vector<RankProgress>& ranks) {
  auto& known = nodes_[node];
  std::erase_if(known, [&](const auto& entry) {
    return std::ranges::find(ranks, entry.first, &RankProgress::rank) == ranks.end();
  });
  for (const auto& rank : ranks) known[rank.rank].last = rank;
  if (++reports_ >= nodes_.size()) sort_times();
  std::vector<Straggler> found;
  for (auto& [number, rank] : known) {
    const auto others = others_of(rank);
    const bool slower = others && is_slower(*rank.last.busy_ms, *others);
    rank.slow = slower ? rank.slow + 1 : 0;
    if (rank.slow < kPersistent || rank.named) continue;
    rank.named = true;
    found.push_back({number, *rank.last.busy_ms, *others});
  }
  return found;
}

void JobProgress::end(NodeId node) {
  nodes_.erase(node);
  active_[node] = LeaderTime(0);
}

void JobProgress::sort_times() {
  reports_ = 0;
  times_.clear();
  for (auto& [node, ranks] : nodes_)
    for (auto& [number, rank] : ranks) {
      rank.sorted = rank.last.busy_ms;
      if (rank.sorted) times_.push_back(*rank.sorted);
    }
  std::ranges::sort(times_);
}

std::optional<double> JobProgress::others_of(const Rank& rank) const {
  if (!rank.last.busy_ms || !rank.sorted || times_.size() < 2) return std::nullopt;
  const auto own = std::ranges::lower_bound(times_, *rank.sorted) - times_.begin();
  const auto middle = static_cast<std::ptrdiff_t>((times_.size() - 1) / 2);
  return times_[static_cast<std::size_t>(middle < own ? middle : middle + 1)];
}

std::optional<LeaderTime> JobProgress::last_active(const std::vector<NodeId>& nodes) const {
  LeaderTime last{0};
  for (const NodeId node : nodes) {
    const auto found = active_.find(node);
    if (found == active_.end()) return std::nullopt;
    last = std::max(last, found->second);
  }
  return last;
}

std::vector<RankProgress> JobProgress::of(NodeId node) const {
  std::vector<RankProgress> all;
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return all;
  for (const auto& [number, rank] : found->second) {
    auto& one = all.emplace_back(rank.last);
    const auto others = others_of(rank);
    if (others && *others > 0) one.skew = *one.busy_ms / *others;
    one.straggler = rank.slow >= kPersistent;
  }
  return all;
}

}  // namespace mgpu::launcher
