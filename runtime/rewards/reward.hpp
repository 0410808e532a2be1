#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace mgpu::rewards {

// One completion of a prompt, as a reward sees it.
struct Scored {
  std::string_view completion{};        // the text of the answer
  const nlohmann::json* row = nullptr;  // all columns of its row of the data set; never null
  std::span<const int> ids{};           // its tokens
  bool truncated = false;               // it was cut at the longest length
  std::size_t group = 0;                // completions of one prompt have one number
};

// Nothing: not applicable. It counts neither in the mean nor in the spread of its group.
using Score = std::optional<double>;

// What a completion is worth. One thread calls it. The same call has all completions of a group;
// rewards of any group do not depend on which others are there, except where that was asked for.
class Reward {
 public:
  Reward() = default;
  Reward(const Reward&) = delete;
  Reward& operator=(const Reward&) = delete;
  virtual ~Reward() = default;

  virtual const std::string& name() const = 0;  // as it was asked for

  // One score per completion, in their order; each is a finite number or nothing. Throws
  // RewardError.
  virtual std::vector<Score> score(std::span<const Scored> completions) = 0;
};

// A reward that failed: one line that begins with its name.
class RewardError : public std::runtime_error {
 public:
  RewardError(const std::string& reward, const std::string& what)
      : std::runtime_error("reward " + reward + ": " + what) {}
};

}  // namespace mgpu::rewards
