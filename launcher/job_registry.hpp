#pragma once

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

}  // namespace mgpu::launcher
