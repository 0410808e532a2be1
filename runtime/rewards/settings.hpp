#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace mgpu::rewards {

enum class LengthScope { group, batch };
enum class OnError { stop, none };

// What rewards can be told, under the names of the recipe's keys.
struct Settings {
  std::optional<double> cosine_min_value_wrong;  // 0; of TRL's own reward -1
  double cosine_max_value_wrong = -0.5;
  double cosine_min_value_correct = 0.5;
  double cosine_max_value_correct = 1;
  int cosine_max_len = 1000;
  int repetition_n_grams = 3;
  double repetition_max_penalty = -1;
  std::optional<int> max_completion_len;  // 16384; of TRL's own reward 1280
  std::optional<int> soft_punish_cache;   // 4096; of TRL's own reward 256
  LengthScope length_scope = LengthScope::group;
  OnError reward_on_error = OnError::stop;
  std::chrono::milliseconds reward_timeout{10'000};  // of one item, outside of this process
  std::vector<std::string> reasoning_delimiters = {"</think>"};
  std::string reward_python = "python3";  // runs files of rewards
  std::string folder;                     // that paths of files are relative to; empty: ours
  nlohmann::json reward_rules = nlohmann::json::object();  // rules by name
};

// Throws naming the setting.
void check(const Settings& settings);

// From the values of the recipe's keys, {cosine_max_len: 500}; keys that are missing keep their
// value. Throws naming the key.
Settings read_settings(const nlohmann::json& values);

}  // namespace mgpu::rewards
