#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/rewards/reward.hpp"
#include "runtime/rewards/settings.hpp"

namespace mgpu::rewards {

// The names that make_reward knows, rules of the settings aside.
std::vector<std::string> reward_names();

// A reward by what stands in reward_funcs: a name of the list above or of a rule of the settings,
// a file and a function of it (./my_rewards.py:fn), a program (cmd:./score --fast), or an address
// (http://host:port/path). Throws std::runtime_error; for an unknown name with the list and the
// nearest one.
std::unique_ptr<Reward> make_reward(const std::string& name, const Settings& settings);

// All of reward_funcs in their order; names that are given twice are refused.
std::vector<std::unique_ptr<Reward>> make_rewards(const std::vector<std::string>& names,
                                                  const Settings& settings);

// Whether a reward reads the column `solution` of the rows.
bool needs_solution(const std::string& name);

}  // namespace mgpu::rewards
