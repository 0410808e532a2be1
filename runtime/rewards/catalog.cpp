#include "runtime/rewards/catalog.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <set>
#include <stdexcept>

#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/spelling.hpp"
#include "runtime/rewards/external_reward.hpp"
#include "runtime/rewards/rules.hpp"
#include "runtime/rewards/text_rewards.hpp"

namespace mgpu::rewards {
namespace {

constexpr long kMaxConcurrency = 1024;  // a thread, and for programs a process, for each

struct Known {
  const char* name;
  bool solution = false;  // needs the `solution` column
};

constexpr std::array kKnown = {
    Known{"accuracy", true},
    Known{"format"},
    Known{"tag_count"},
    Known{"reasoning_steps"},
    Known{"length", true},
    Known{"cosine", true},
    Known{"repetition_penalty"},
    Known{"soft_overlong_punishment"},
    Known{"accuracy_reward", true},
    Known{"reasoning_accuracy_reward", true},
    Known{"think_format_reward"},
    Known{"get_cosine_scaled_reward", true},
    Known{"get_repetition_penalty_reward"},
    Known{"get_soft_overlong_punishment"},
    Known{"rule"},
    Known{"ndcg_rule"},
    Known{"ranking"},
};

// Rewards of open-r1 and MiniOneRec that are not built in: they run programs or other models.
constexpr std::array kNotBuiltIn = {"code",    "binary_code", "ioi_code",
                                    "cf_code", "code_format", "sasrec"};

std::string list_of_names(const Settings& settings) {
  std::string list;
  for (const auto& name : reward_names()) list += (list.empty() ? "" : ", ") + name;
  list += ", semantic";  // not in reward_names(): it needs files
  for (const auto& [name, rule] : settings.reward_rules.items()) list += ", " + name;
  return list;
}

[[noreturn]] void refuse_name(const std::string& name, const Settings& settings) {
  for (const auto* other : kNotBuiltIn)
    if (name == other)
      throw rendezvous::InputError(fmt::format(
          "reward {} runs programs or another model and is not built in; provide your own as "
          "./my_rewards.py:{} or cmd:PROGRAM",
          name, name));
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::path(name) / "config.json", ignored))
    throw rendezvous::InputError(
        fmt::format("reward {} is a model; mgpu-train score supports reward functions only, a GRPO "
                    "run supports both",
                    rendezvous::shown(name)));
  auto names = reward_names();
  for (const auto& [rule, value] : settings.reward_rules.items()) names.push_back(rule);
  const auto near = rendezvous::nearest(name, names);
  throw rendezvous::InputError(fmt::format(
      "unknown reward {}{}; supported are {}, a rule of reward_rules, "
      "FILE.py:FUNCTION, cmd:PROGRAM, "
      "http://HOST:PORT/PATH and a reward model's folder",
      rendezvous::shown(name), near.empty() ? "" : fmt::format(" (did you mean {}?)", near),
      list_of_names(settings)));
}

void check_finite(const char* name, double value) {
  if (!std::isfinite(value)) throw rendezvous::InputError(fmt::format("{} must be finite", name));
}

void check_minimum(const char* name, long value, long minimum) {
  if (value < minimum)
    throw rendezvous::InputError(
        fmt::format("{}: {} is too small; the minimum is {}", name, value, minimum));
}

void check_maximum(const char* name, long value, long maximum) {
  if (value > maximum)
    throw rendezvous::InputError(
        fmt::format("{}: {} is too large; the maximum is {}", name, value, maximum));
}

}  // namespace

void check(const Settings& settings) {
  check_finite("cosine_min_value_wrong", settings.cosine_min_value_wrong.value_or(0));
  check_finite("cosine_max_value_wrong", settings.cosine_max_value_wrong);
  check_finite("cosine_min_value_correct", settings.cosine_min_value_correct);
  check_finite("cosine_max_value_correct", settings.cosine_max_value_correct);
  check_finite("repetition_max_penalty", settings.repetition_max_penalty);
  if (settings.repetition_max_penalty > 0)
    throw rendezvous::InputError(fmt::format(
        "repetition_max_penalty: {} is above 0 and would reward repetition; use 0 or less",
        settings.repetition_max_penalty));
  check_minimum("cosine_max_len", settings.cosine_max_len, 1);
  check_minimum("repetition_n_grams", settings.repetition_n_grams, 1);
  check_minimum("max_completion_len", settings.max_completion_len.value_or(1), 1);
  check_minimum("soft_punish_cache", settings.soft_punish_cache.value_or(0), 0);
  check_minimum("reward_concurrency", settings.reward_concurrency.value_or(1), 1);
  check_maximum("reward_concurrency", settings.reward_concurrency.value_or(1), kMaxConcurrency);
  check_minimum("reward_timeout", settings.reward_timeout.count(), 1);
  for (const auto& [name, rule] : settings.reward_rules.items()) make_rule(name, rule);
}

std::vector<std::string> reward_names() {
  std::vector<std::string> names;
  for (const auto& known : kKnown) names.emplace_back(known.name);
  return names;
}

bool needs_solution(const std::string& name) {
  return std::any_of(kKnown.begin(), kKnown.end(),
                     [&](const Known& known) { return known.solution && name == known.name; });
}

std::unique_ptr<Reward> make_reward(const std::string& name, const Settings& settings) {
  check(settings);
  if (const auto rule = settings.reward_rules.find(name); rule != settings.reward_rules.end())
    return make_rule(name, *rule);
  if (auto reward = make_answer_reward(name, settings)) return reward;
  if (auto reward = make_text_reward(name, settings)) return reward;
  if (auto reward = make_recommendation_reward(name, settings)) return reward;
  if (auto reward = make_external_reward(name, settings)) return reward;
  refuse_name(name, settings);
}

std::vector<std::unique_ptr<Reward>> make_rewards(const std::vector<std::string>& names,
                                                  const Settings& settings) {
  if (names.empty())
    throw rendezvous::InputError("reward_funcs is empty; supported are " + list_of_names(settings));
  std::set<std::string> seen;
  std::vector<std::unique_ptr<Reward>> rewards;
  for (const auto& name : names) {
    if (!seen.insert(name).second)
      throw rendezvous::InputError(
          fmt::format("reward_funcs names {} twice", rendezvous::shown(name)));
    rewards.push_back(make_reward(name, settings));
  }
  return rewards;
}

}  // namespace mgpu::rewards
