#pragma once

#include <chrono>
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/base/input_error.hpp"

namespace mgpu::rewards {

// A reward's view of one completion.
struct CompletionView {
  std::string_view completion{};        // the text of the answer
  const nlohmann::json* row = nullptr;  // all columns of its dataset row; never null
  std::span<const int> ids{};           // its token ids
  bool truncated = false;               // it reached the maximum length
  std::size_t group = 0;                // the same for all completions of one prompt
  // The prompt as the model read it: text, or a list of messages that its chat template rendered.
  // Null: it is that of the row's columns.
  const nlohmann::json* prompt = nullptr;
};

using Deadline = std::chrono::steady_clock::time_point;

// No value: the reward does not apply. Such a score is excluded from the mean and the deviation of
// its group.
using Score = std::optional<double>;

// Scores completions. One thread at a time calls it. A call contains all completions of a group;
// the scores of a group do not depend on the other groups in the call unless a setting requests
// that.
class Reward {
 public:
  Reward() = default;
  Reward(const Reward&) = delete;
  Reward& operator=(const Reward&) = delete;
  virtual ~Reward() = default;

  virtual const std::string& name() const = 0;  // as given in reward_funcs

  // Starts to score completions, all of each of their groups, if the reward can do that while the
  // caller does other work. The next call of score() must contain them; it throws what fails.
  virtual void begin(std::span<const CompletionView> completions) {
    static_cast<void>(completions);
  }

  // The next calls of score() fail at that time instead of waiting any longer.
  virtual void set_deadline(Deadline deadline) { static_cast<void>(deadline); }

  // One score per completion, in order; each is a finite number or has no value. Throws
  // RewardError or RewardInputError.
  virtual std::vector<Score> score(std::span<const CompletionView> completions) = 0;
};

// A failed reward. The message is one line that begins with the reward's name.
class RewardError : public std::runtime_error {
 public:
  RewardError(const std::string& reward, const std::string& what)
      : std::runtime_error("reward " + reward + ": " + what) {}
};

// A reward that would fail again in the same way, because the recipe, its files or the rows of the
// dataset are wrong. The message is like that of a RewardError.
class RewardInputError : public rendezvous::InputError {
 public:
  RewardInputError(const std::string& reward, const std::string& what)
      : InputError("reward " + reward + ": " + what) {}
};

// Throws one of the two, depending on `cause`.
[[noreturn]] inline void throw_reward_error(const std::string& reward,
                                            const std::runtime_error& cause) {
  rendezvous::throw_like(cause, "reward " + reward + ": " + cause.what());
}

}  // namespace mgpu::rewards
