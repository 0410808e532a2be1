#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/rewards/reward.hpp"
#include "runtime/rl/experience.hpp"
#include "runtime/rl/generator.hpp"
#include "runtime/rl/prompts.hpp"
#include "runtime/train/model_source.hpp"

namespace mgpu::rl {

// What is asked of a policy: the same number of completions of each question.
struct Round {
  std::uint64_t seed = 0;  // of this round
  std::vector<std::uint32_t> questions;
  std::vector<std::int64_t> numbers;  // theirs among the questions of all ranks
  std::int64_t group = 1;
};

// Has this rank's questions completed by the policy as it is now, and the completions judged.
class Actor {
 public:
  Actor(const train::ModelSource& source, Generator& generator,
        std::vector<std::unique_ptr<rewards::Reward>>& rewards);

  // Question after question; their rewards are there, advantages are not.
  std::vector<Sample> complete(const Round& round, const std::vector<Question>& questions);

 private:
  void judge(std::vector<Sample>& samples, std::int64_t group,
             const std::vector<Question>& questions);

  const train::ModelSource& source_;
  Generator& generator_;
  std::vector<std::unique_ptr<rewards::Reward>>& rewards_;
};

}  // namespace mgpu::rl
