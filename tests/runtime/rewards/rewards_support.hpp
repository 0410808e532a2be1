#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/rewards/catalog.hpp"

namespace mgpu::tests {

using nlohmann::json;
using rewards::Score;

// Scores texts as completions of one group with the given row. Rows, groups and ids can be changed
// per text.
struct Batch {
  std::vector<std::string> texts;
  std::vector<json> rows;
  std::vector<std::vector<int>> ids;
  std::vector<std::size_t> groups;

  explicit Batch(std::vector<std::string> t, json row = json::object()) : texts(std::move(t)) {
    rows.assign(texts.size(), row);
    ids.resize(texts.size());
    groups.assign(texts.size(), 0);
  }

  std::vector<Score> scored_by(rewards::Reward& reward) const {
    std::vector<rewards::CompletionView> all;
    for (std::size_t i = 0; i < texts.size(); ++i)
      all.push_back({texts[i], &rows[i], ids[i], false, groups[i]});
    return reward.score(all);
  }
  std::vector<Score> scored_by(const std::string& name,
                               const json& settings = json::object()) const {
    return scored_by(*rewards::make_reward(name, rewards::read_settings(settings)));
  }
};

// The message that a call throws; empty if it does not throw.
template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "";
}

}  // namespace mgpu::tests
