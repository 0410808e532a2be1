#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/rl/experience.hpp"
#include "runtime/rl/prompts.hpp"

namespace mgpu::rl {

// What was generated, for people: a file of JSON lines a generation, and a table of a few.
class CompletionsLog {
 public:
  // `folder`: empty: no files. `shown`: rows of the table; 0: none.
  CompletionsLog(std::string folder, std::int64_t shown, std::vector<std::string> rewards);

  // In place of what an earlier run wrote of the step.
  void write(std::int64_t step, const Generation& generation,
             const std::vector<Question>& questions);
  // Empty if none is wanted.
  std::string table(const Generation& generation, const std::vector<Question>& questions) const;

 private:
  std::string folder_;
  std::int64_t shown_;
  std::vector<std::string> rewards_;
  std::int64_t last_written_ = -1;  // a step may take several generations
};

// TRL's numbers about the lengths of completions, over all of a generation.
std::map<std::string, double> length_metrics(const std::vector<Sample>& samples);

// Says when a number leaves the range in which training is healthy; again only after it was back.
class HealthWatch {
 public:
  std::vector<std::string> warnings(const std::map<std::string, double>& metrics);

 private:
  std::set<std::string> outside_;
};

}  // namespace mgpu::rl
