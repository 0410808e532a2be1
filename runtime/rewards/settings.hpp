#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace mgpu::rewards {

enum class LengthScope { group, batch };
enum class OnError { stop, none };

// Settings of the rewards, named after the recipe's keys.
struct Settings {
  std::optional<double> cosine_min_value_wrong;  // default: 0; for TRL's reward -1
  double cosine_max_value_wrong = -0.5;
  double cosine_min_value_correct = 0.5;
  double cosine_max_value_correct = 1;
  int cosine_max_len = 1000;
  int repetition_n_grams = 3;
  double repetition_max_penalty = -1;
  std::optional<int> max_completion_len;  // default: 16384; for TRL's reward 1280
  std::optional<int> soft_punish_cache;   // default: 4096; for TRL's reward 256
  LengthScope length_scope = LengthScope::group;
  OnError reward_on_error = OnError::stop;
  std::chrono::milliseconds reward_timeout{10'000};  // per completion, for external rewards
  std::optional<int>
      reward_concurrency;  // groups at a time; default: 8 for servers, 1 for programs
  std::chrono::milliseconds patience{1'620'000};  // longest wait for a server that answers 429
  std::vector<std::string> reasoning_delimiters = {"</think>"};
  std::string reward_python = "python3";  // runs Python reward files
  bool reward_sandbox = false;            // Python functions and programs run in a sandbox
  std::string folder;               // base of relative file paths; empty: the working directory
  std::string info_file, ada_path;  // of the reward semantic: the items and their embeddings
  nlohmann::json reward_rules = nlohmann::json::object();  // rules by name
};

// Throws with the setting's name.
void check(const Settings& settings);

// Reads the values of the recipe's keys, such as {cosine_max_len: 500}. Missing keys keep their
// default. Throws with the key's name.
Settings read_settings(const nlohmann::json& values);

}  // namespace mgpu::rewards
