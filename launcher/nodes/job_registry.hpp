#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace mgpu::launcher {

// Where a job of several nodes can be asked how it is, noted for this user's later commands on this
// machine in a folder that only the user can read.
struct JobAddress {
  std::string host;
  int port = 0;
  std::optional<std::string> secret = {};  // empty text: none is needed; nothing: not known
};

// Both do what they can and say nothing: a job does not fail for its note.
void note_job(const std::string& job, const JobAddress& address);
void forget_job(const std::string& job);

std::optional<JobAddress> find_job(const std::string& job);

// A leader's sign that it leads: what is found of one that has not ended well tells when it was
// alive last, and how many nodes its round had, which may still run it.
struct LeaderTrace {
  int nodes = 0;
  std::chrono::nanoseconds age{0};
};

void trace_leader(const std::string& job, int port, int nodes);
void erase_leader(const std::string& job, int port);
std::optional<LeaderTrace> find_leader(const std::string& job, int port);

}  // namespace mgpu::launcher
