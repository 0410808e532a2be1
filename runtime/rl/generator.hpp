#pragma once

#include <cstdint>
#include <vector>

#include "runtime/rollout/engine.hpp"

namespace mgpu::rl {

// Who completes prompts with the weights of the policy.
class Generator {
 public:
  Generator() = default;
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;
  virtual ~Generator() = default;

  // It knows the policy as it is after this step when it returns; called by all ranks together,
  // before any completes.
  virtual void renew(std::int64_t step) = 0;

  // Completions of this rank's prompts, in their order and that of their seeds. What a completion
  // becomes depends on the weights, its prompt and its seed.
  virtual std::vector<std::vector<rollout::Completion>> complete(
      const std::vector<rollout::Prompt>& prompts) = 0;

  // Called by all ranks together after the last step: nothing of the run stays elsewhere.
  virtual void finish() = 0;
};

}  // namespace mgpu::rl
