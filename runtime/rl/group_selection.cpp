#include "runtime/rl/group_selection.hpp"

#include <algorithm>
#include <map>

#include "runtime/rewards/item_list.hpp"

namespace mgpu::rl {

std::int64_t generated_for(std::int64_t group) {
  return group + group / 2;
}

std::vector<std::size_t> varied_completions(std::span<const std::string_view> texts,
                                            std::string_view target, std::size_t group) {
  using Numbers = std::vector<std::size_t>;
  std::vector<Numbers> others;  // the numbers of each text, by its first number
  std::map<std::string_view, std::size_t> known;
  Numbers chosen;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto name = rewards::bare_name(texts[i]);
    if (name == rewards::bare_name(target)) {
      if (chosen.size() < group) chosen.push_back(i);
      continue;
    }
    const auto [found, is_new] = known.emplace(name, others.size());
    if (is_new) others.emplace_back();
    others[found->second].push_back(i);
  }
  std::stable_sort(others.begin(), others.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  for (std::size_t round = 0; chosen.size() < group && round < texts.size(); ++round)
    for (const auto& numbers : others)
      if (round < numbers.size() && chosen.size() < group) chosen.push_back(numbers[round]);
  return chosen;
}

}  // namespace mgpu::rl
