#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launcher/lifecycle/diagnosis.hpp"

namespace mgpu::launcher {

// How one rank of an attempt ended, in the order the ends were seen.
struct RankResult {
  int rank = 0;
  int local_rank = 0;
  pid_t pid = 0;  // 0: never started
  ExitReport report;
  bool ended_by_us = false;  // after we had told it to stop
  std::chrono::microseconds after_start{0};
  int node_rank = 0;
  std::string host;  // empty: the job has one node
};

struct AttemptResult {
  int number = 0;
  std::string started_at;  // local time, for people
  std::vector<RankResult>
      ranks;  // the first failure is the first one that is neither clean nor ours
  std::optional<RankResult> first_failure;
  Cause cause;
  std::optional<ErrorFile> error_file;
  std::string stderr_tail;
  std::string log_dir;  // of the first failure, empty: none
};

struct JobResult {
  std::string target;
  std::string host;
  std::string run_id;
  int node_rank = 0;
  int status = 0;
  int stop_signal = 0;  // 0: nobody told us to stop
  int max_restarts = 0;
  int nodes = 1;
  std::string remark;  // why there was no further restart, may be empty
  std::chrono::microseconds lasted{0};
  std::vector<AttemptResult> attempts;  // the failed ones and the last
};

// What a node tells the leader of its part of an attempt, and how the leader reads it. The reader
// takes what fits and leaves out the rest: it comes from another program.
std::string attempt_to_json(const AttemptResult& attempt);
AttemptResult attempt_from_json(const std::string& text);

// One line: why the ranks start again.
std::string restart_line(const AttemptResult& attempt, int max_restarts);

// What a person reads when the job did not end well. Several lines, no line end at the last.
std::string failure_report(const JobResult& job);

// The same for machines; one JSON object.
std::string report_json(const JobResult& job);

}  // namespace mgpu::launcher
