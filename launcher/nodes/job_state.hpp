#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launcher/nodes/coordinator.hpp"

namespace mgpu::launcher {

// The value in etcd that a leader must not lose. It is saved at the start and end of each round.
struct JobState {
  // Identifies this job among jobs with the same id: the term of its first leader; 0: not known.
  std::int64_t job = 0;
  JobCounts counts = {};
  int nodes = 0;                  // of the last round
  int left = 0;                   // of these, nodes that left with none of their ranks running
  LeaderTime lease_and_grace{0};  // in the last round, see Coordinator
  std::optional<int> ended = {};  // the job's exit status, once it has ended

  friend bool operator==(const JobState&, const JobState&) = default;
};

std::string job_state_json(const JobState& state);
// Nothing if the text is no state. Numbers are limited to what a job can have.
std::optional<JobState> parse_job_state(const std::string& text);

}  // namespace mgpu::launcher
