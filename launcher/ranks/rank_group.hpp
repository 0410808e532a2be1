#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/output/output.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/ranks/inherited.hpp"
#include "launcher/ranks/worker.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {

// The ranks of this node as processes: starts them, tells of their ends, passes signals on.
// Destroying it kills what still runs.
class RankGroup {
 public:
  struct Settings {
    const Inherited& inherited;
    std::string workdir;
    bool own_stdin = false;    // stdin is the launcher's; no rank reads it
    bool whole_group = false;  // signals go to a rank's whole process group, not its leader
  };

  RankGroup(boost::asio::io_context& io, Output& output, int ranks, Settings settings);
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;
  ~RankGroup();

  // Called with a local rank when that may have ended; collect tells.
  void on_change(std::function<void(int)> change) { change_ = std::move(change); }

  // The cgroup in which ranks start from now on; -1: in our own.
  void start_in(int cgroup_fd) { cgroup_fd_ = cgroup_fd; }
  // Starts one rank, in the place of what the place held. Returns nothing when it runs, else why
  // the system gives us no process.
  std::optional<std::string> start(const RankSpec& spec, const std::string& prefix);
  // Makes the place empty: nothing was started there in this attempt.
  void clear(int local_rank) { worker(local_rank).reset(); }
  // Takes the end of a rank, with what it left in its pipes. Nothing while it runs.
  std::optional<WorkerExit> collect(int local_rank);

  int size() const { return static_cast<int>(workers_.size()); }
  pid_t pid_of(int local_rank) const;
  bool running(int local_rank) const;
  // Whether the process is a rank of ours that has not been collected.
  bool owns(pid_t pid) const;

  // A request to end: to the leader or the whole group, as the surroundings say. A stopped rank is
  // woken to follow it.
  void request_stop(int local_rank, int signo);
  void signal_leaders(int signo);
  void signal_groups(int signo);
  // Those that a signal has stopped since the last question.
  std::vector<int> newly_stopped();
  // A rank that cannot be ended is not waited for any longer.
  void abandon(int local_rank);

 private:
  std::unique_ptr<Worker>& worker(int local_rank) {
    return workers_[static_cast<size_t>(local_rank)];
  }

  boost::asio::io_context& io_;
  Output& output_;
  Settings settings_;
  int cgroup_fd_ = -1;
  std::vector<std::unique_ptr<Worker>> workers_;  // by local rank
  volatile int* exec_errors_;                     // shared with the children, one a rank
  rendezvous::UniqueFd null_;                     // stdin of all but rank 0
  std::function<void(int)> change_;
};

// Our environment with a rank's differences and without the nodes' secret, as NAME=value.
std::vector<std::string> environment_of(const RankSpec& spec, char** ours);

}  // namespace mgpu::launcher
