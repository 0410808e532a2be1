#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/rewards/reward.hpp"
#include "runtime/rewards/settings.hpp"

namespace mgpu::rewards {

// The names of the built-in rewards, without the rules of the settings.
std::vector<std::string> reward_names();

// Creates a reward from an entry of reward_funcs: a name of the list above, a rule of the settings,
// a function in a Python file (./my_rewards.py:fn), a program (cmd:./score --fast) or a server
// (http://host:port/path). Throws std::runtime_error; for an unknown name the message has the list
// and the nearest name.
std::unique_ptr<Reward> make_reward(const std::string& name, const Settings& settings);

// Creates all rewards of reward_funcs, in order. Rejects duplicate names.
std::vector<std::unique_ptr<Reward>> make_rewards(const std::vector<std::string>& names,
                                                  const Settings& settings);

// Whether a reward reads the `solution` column of the rows.
bool needs_solution(const std::string& name);

}  // namespace mgpu::rewards
