#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/rl/generation.hpp"
#include "runtime/rl/prompts.hpp"

namespace mgpu::rl {

// Writes the generated completions for people to read: one JSON Lines file per generation, and a
// table of a few completions.
class CompletionsLog {
 public:
  // Without a `folder` no files are written. `shown` is the number of rows of the table; 0: no
  // table.
  CompletionsLog(std::string folder, std::int64_t shown, std::vector<std::string> rewards);

  // Replaces what an earlier run wrote for this step.
  void write(std::int64_t step, const Generation& generation, const std::vector<Prompt>& prompts);
  // Empty if no table was requested.
  std::string table(const Generation& generation, const std::vector<Prompt>& prompts) const;

 private:
  std::string folder_;
  std::int64_t shown_;
  std::vector<std::string> rewards_;
  std::int64_t last_written_ = -1;  // a step may take several generations
};

}  // namespace mgpu::rl
