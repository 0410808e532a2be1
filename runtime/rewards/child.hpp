#pragma once

#include <string>
#include <vector>

#include "rendezvous/base/unique_fd.hpp"
#include "rendezvous/processes/child_process.hpp"
#include "runtime/rewards/external_reward.hpp"

namespace mgpu::rewards {

struct ChildProgram {
  std::vector<std::string> argv{};         // argv[0] is searched in PATH
  std::string command{};                   // what a shell in argv runs, for messages
  std::vector<std::string> environment{};  // NAME=VALUE, in addition to ours
  std::string folder{};                    // its working directory; empty: ours
  bool announces_ready = false;            // its first line reports readiness or an error
  bool sandboxed = false;                  // see sandbox.hpp
  std::vector<std::string> readable{};     // in a sandbox: what it needs of /tmp, if it is there
};

// A child process that answers lines on its stdin with lines on its stdout. It inherits our
// environment and stderr, and no other descriptor. The first request starts it, in its own process
// group. A failure stops it, and the next request starts it again. It
// does not outlive us: it gets a signal when the thread of the first request ends, otherwise its
// stdin ends. One thread makes all requests. Destroying the Child kills the group and reaps the
// process.
//
// A sandboxed child gets a pipe as its stderr, because a file could be opened again through /proc
// and be overwritten. What it writes there appears on our stderr while a request waits for it,
// without control characters and at most 64 KiB per request.
class Child : public ScoringEndpoint {
 public:
  explicit Child(ChildProgram program);
  ~Child() override;

  std::string request(const std::string& line, Deadline deadline, std::stop_token cancel) override;

 private:
  void start();
  void stop();
  std::string exchange(std::string out, Deadline deadline);
  void write_some(const std::string& out, std::size_t& sent);
  bool read_some();       // false at the end of its stdout
  bool pass_on_stderr();  // false if there is nothing to read now
  [[noreturn]] void throw_exit();

  ChildProgram program_;
  rendezvous::ChildProcess process_;
  rendezvous::UniqueFd to_;
  rendezvous::UniqueFd from_;
  rendezvous::UniqueFd err_;        // of a sandboxed child
  rendezvous::UniqueFd cancelled_;  // readable once a stop was requested
  std::string received_;
  std::size_t shown_stderr_ = 0;  // bytes of the current request
};

}  // namespace mgpu::rewards
