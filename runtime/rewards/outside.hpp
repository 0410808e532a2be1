#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/rewards/reward.hpp"
#include "runtime/rewards/settings.hpp"

// Rewards that are computed outside of this process: one question is one line of JSON, so is its
// answer. docs/rewards.md has the lines.
namespace mgpu::rewards {

using Deadline = std::chrono::steady_clock::time_point;

// Who is asked. A failure is a std::runtime_error whose text needs no name of the reward.
class Correspondent {
 public:
  Correspondent() = default;
  Correspondent(const Correspondent&) = delete;
  Correspondent& operator=(const Correspondent&) = delete;
  virtual ~Correspondent() = default;

  // The answer to a line, both without their newline. Nothing is left over from an ask that failed.
  virtual std::string ask(const std::string& line, Deadline deadline) = 0;
};

// The question for the completions of one group.
std::string question_of(std::span<const Scored* const> group);

// The scores that an answer says; throws when it says an error, another number of scores than was
// asked for, or something that is no finite number.
std::vector<Score> scores_in(const std::string& answer, std::size_t count);

// FILE.py:FUNCTION, cmd: PROGRAM, http://HOST:PORT/PATH; null for any other name.
std::unique_ptr<Reward> make_outside_reward(const std::string& name, const Settings& settings);

// A reward whose groups are asked for one after the other. After a failure it throws, or gives no
// scores to that group and says so once on stderr, as the settings say.
std::unique_ptr<Reward> make_asking_reward(std::string name, std::unique_ptr<Correspondent> who,
                                           const Settings& settings);

std::unique_ptr<Correspondent> make_http_correspondent(const std::string& url);

}  // namespace mgpu::rewards
