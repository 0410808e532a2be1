#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace mgpu::rewards {

enum class LengthScope { group, batch };
enum class OnError { stop, none };

// What rewards can be told, under the names of the recipe's keys.
struct Settings {
  double cosine_min_value_wrong = 0;
  double cosine_max_value_wrong = -0.5;
  double cosine_min_value_correct = 0.5;
  double cosine_max_value_correct = 1;
  int cosine_max_len = 1000;
  int repetition_n_grams = 3;
  double repetition_max_penalty = -1;
  int max_completion_len = 16384;
  int soft_punish_cache = 4096;
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

}  // namespace mgpu::rewards
