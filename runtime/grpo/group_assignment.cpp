#include "runtime/grpo/group_assignment.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "runtime/data/share.hpp"

namespace mgpu::grpo {
namespace {

using Costs = std::span<const CompletionCost>;

// Completions that are computed together; in `parts_of`, all of one prompt.
struct Part {
  std::vector<std::uint32_t> completions;
  double cost = 0;
};

double cost_of(const std::vector<std::uint32_t>& completions, Costs costs) {
  double sum = 0;
  std::set<std::uint32_t> prompts;
  for (const auto i : completions) {
    sum += static_cast<double>(costs[i].tokens);
    if (prompts.insert(costs[i].prompt).second) sum += static_cast<double>(costs[i].prompt_tokens);
  }
  return sum;
}

Part part_of(std::vector<std::uint32_t> completions, Costs costs) {
  const auto cost = cost_of(completions, costs);
  return {std::move(completions), cost};
}

// Divides every group into equal parts of at most `most` completions; the largest parts first, and
// of equal ones the most expensive.
std::deque<Part> parts_of(Costs costs, std::size_t most) {
  std::map<std::uint32_t, std::vector<std::uint32_t>> groups;
  for (std::uint32_t i = 0; i < costs.size(); ++i) groups[costs[i].prompt].push_back(i);
  std::deque<Part> parts;
  for (const auto& [prompt, group] : groups) {
    const auto count = (group.size() + most - 1) / most;
    for (std::size_t i = 0; i < count; ++i)
      parts.push_back(part_of(
          {group.data() + group.size() * i / count, group.data() + group.size() * (i + 1) / count},
          costs));
  }
  std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return std::pair(a.completions.size(), a.cost) > std::pair(b.completions.size(), b.cost);
  });
  return parts;
}

// Puts each part into the cheapest micro-batch with room for it. A part for which none has room
// fills the one with most room, and what is left of it comes next.
std::vector<Part> fill(std::deque<Part> parts, Costs costs, std::size_t micro_batches,
                       std::size_t per_device) {
  std::vector<Part> all(micro_batches);
  while (!parts.empty()) {
    auto part = std::move(parts.front());
    parts.pop_front();
    Part* best = nullptr;
    for (auto& one : all)
      if (one.completions.size() + part.completions.size() <= per_device &&
          (best == nullptr || one.cost < best->cost))
        best = &one;
    if (best == nullptr) {
      best =
          &*std::ranges::min_element(all, {}, [](const Part& p) { return p.completions.size(); });
      const auto room = per_device - best->completions.size();
      const auto* begin = part.completions.data();
      const auto* end = begin + part.completions.size();
      parts.push_front(part_of({begin + room, end}, costs));
      part.completions.resize(room);
    }
    best->completions.insert(best->completions.end(), part.completions.begin(),
                             part.completions.end());
    best->cost = cost_of(best->completions, costs);
  }
  return all;
}

// One micro-batch of each rank is one of `all`. An empty one gets the cheapest completion, outside
// of the loss.
Assignments to_ranks(const std::vector<Part>& all, Costs costs, int world) {
  std::vector<double> loads;
  for (const auto& one : all) loads.push_back(one.cost);
  std::uint32_t cheapest = 0;
  for (std::uint32_t i = 1; i < costs.size(); ++i)
    if (cost_of({i}, costs) < cost_of({cheapest}, costs)) cheapest = i;
  Assignments ranks;
  for (const auto& rank : data::share(
           loads, {.world = world, .max_items = 1, .min_micro_batches = 0, .weights = {}})) {
    auto& micro_batches = ranks.emplace_back();
    for (const auto& items : rank) {
      auto& assignments = micro_batches.emplace_back();
      for (const auto item : items)
        for (const auto i : all[item].completions) assignments.push_back({i, true});
      if (assignments.empty()) assignments.push_back({cheapest, false});
    }
  }
  return ranks;
}

}  // namespace

double busiest_rank(const Assignments& ranks, Costs costs) {
  double most = 0;
  for (const auto& rank : ranks) {
    double sum = 0;
    for (const auto& micro_batch : rank) {
      std::vector<std::uint32_t> completions;
      for (const auto& assignment : micro_batch) completions.push_back(assignment.completion);
      sum += cost_of(completions, costs);
    }
    most = std::max(most, sum);
  }
  return most;
}

Assignments assign_groups_to_ranks(Costs completions, int world, std::int64_t per_device) {
  std::vector<double> alone;
  for (std::uint32_t i = 0; i < completions.size(); ++i) alone.push_back(cost_of({i}, completions));
  auto best = assign_to_ranks(alone, world, per_device);
  auto least = busiest_rank(best, completions);
  const auto micro_batches = best.front().size() * best.size();
  for (auto most = static_cast<std::size_t>(per_device); most > 1; most /= 2) {
    auto next = to_ranks(fill(parts_of(completions, most), completions, micro_batches,
                              static_cast<std::size_t>(per_device)),
                         completions, world);
    const auto cost = busiest_rank(next, completions);
    if (cost >= least) continue;
    least = cost;
    best = std::move(next);
  }
  return best;
}

}  // namespace mgpu::grpo
