#include "runtime/rl/item_metrics.hpp"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "runtime/rewards/item_list.hpp"

namespace mgpu::rl {
namespace {

constexpr std::int64_t kCuts[] = {1, 3, 5, 10, 20, 50};

using Group = std::span<const ScoredCompletion>;

double share_of_different(Group group) {
  std::set<std::string_view> texts;
  for (const auto& completion : group) texts.insert(rewards::bare_name(completion.text));
  return static_cast<double>(texts.size()) / static_cast<double>(group.size());
}

std::optional<std::int64_t> place_of(std::string_view target, Group group) {
  for (std::size_t i = 0; i < group.size(); ++i)
    if (rewards::bare_name(group[i].text) == rewards::bare_name(target))
      return static_cast<std::int64_t>(i);
  return std::nullopt;
}

double token_diversity(const std::vector<ScoredCompletion>& completions) {
  std::set<std::int32_t> different;
  std::size_t all = 0;
  for (const auto& completion : completions) {
    const auto size =
        completion.tokens.size() - (completion.terminated && !completion.tokens.empty() ? 1 : 0);
    const auto tokens = std::span(completion.tokens).first(size);
    different.insert(tokens.begin(), tokens.end());
    all += size;
  }
  return all > 0 ? static_cast<double>(different.size()) / static_cast<double>(all) : 0;
}

}  // namespace

std::map<std::string, double> item_metrics(const std::vector<ScoredCompletion>& completions,
                                           const std::vector<Prompt>& prompts, std::int64_t group,
                                           std::int64_t ranked) {
  std::map<std::string, double> metrics;
  if (completions.empty()) return metrics;
  double groups = 0, searched = 0, diversity = 0;
  std::map<std::string, double> sums;
  for (std::size_t i = 0; i < completions.size(); i += static_cast<std::size_t>(group)) {
    const Group one = std::span(completions).subspan(i, static_cast<std::size_t>(group));
    ++groups;
    diversity += share_of_different(one);
    const auto& target = prompts[one.front().prompt].target;
    if (ranked == 0 || target.empty()) continue;
    ++searched;
    const auto place = place_of(target, one);
    for (const auto cut : kCuts) {
      if (cut > ranked) continue;
      const bool hit = place && *place < cut;
      sums[fmt::format("HR@{}", cut)] += hit ? 1 : 0;
      sums[fmt::format("NDCG@{}", cut)] += hit ? 1 / std::log2(static_cast<double>(*place) + 2) : 0;
    }
  }
  for (const auto& [name, sum] : sums) metrics[name] = sum / searched;
  metrics["categorical_diversity"] = diversity / groups;
  metrics["token_diversity"] = token_diversity(completions);
  return metrics;
}

}  // namespace mgpu::rl
