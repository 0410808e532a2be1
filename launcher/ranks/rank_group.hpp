#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/lifecycle/signal.hpp"
#include "launcher/output/output.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/ranks/inherited.hpp"
#include "launcher/ranks/rank_cgroups.hpp"
#include "launcher/ranks/worker.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {

// The processes of the ranks of this node: starts them, reports their exits, forwards signals. The
// destructor kills ranks that still run.
class RankGroup {
 public:
  struct Settings {
    const Inherited& inherited;
    std::string workdir;
    bool own_stdin = false;    // the launcher reads stdin; no rank does
    bool whole_group = false;  // signals go to a rank's whole process group, not its leader
  };

  RankGroup(boost::asio::io_context& io, Output& output, int ranks, Settings settings);
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;
  ~RankGroup();

  // `change` is called with a local rank when that rank may have exited; call collect to find out.
  void on_change(std::function<void(int)> change) { change_ = std::move(change); }

  // Sets the cgroup in which each rank starts from now on.
  void start_in(std::vector<CgroupEntry> cgroups) { cgroups_ = std::move(cgroups); }
  // Starts one rank and replaces its previous process. Returns nullopt on success, else why the
  // process could not be created.
  std::optional<std::string> start(const RankSpec& spec, const std::string& prefix);
  // Removes the previous process of a rank that is not started in this attempt.
  void clear(int local_rank) { worker(local_rank).reset(); }
  // Reaps a rank and reads what it left in its pipes. Nullopt while it runs.
  std::optional<WorkerExit> collect(int local_rank);

  int size() const { return static_cast<int>(workers_.size()); }
  pid_t pid_of(int local_rank) const;
  bool running(int local_rank) const;
  // Whether the process is a rank that has not been collected.
  bool owns(pid_t pid) const;

  // Signals a rank to stop: its leader or the whole group, depending on the settings. Resumes a
  // suspended rank so that it can handle the signal.
  void request_stop(int local_rank, Signal signal);
  void signal_group(int local_rank, Signal signal);
  void signal_leaders(Signal signal);
  void signal_groups(Signal signal);
  // The ranks that a signal has suspended since the last call.
  std::vector<int> newly_stopped();
  // The ranks that are suspended now, by a signal or a debugger.
  std::vector<int> suspended() const;
  // Stops waiting for a rank that cannot be killed.
  void abandon(int local_rank);

 private:
  std::unique_ptr<Worker>& worker(int local_rank) {
    return workers_[static_cast<size_t>(local_rank)];
  }

  boost::asio::io_context& io_;
  Output& output_;
  Settings settings_;
  std::vector<CgroupEntry> cgroups_;              // by local rank; empty: ours
  std::vector<std::unique_ptr<Worker>> workers_;  // by local rank
  volatile int* exec_errors_;                     // shared with the children, one per rank
  rendezvous::UniqueFd null_;                     // stdin of all but rank 0
  std::function<void(int)> change_;
};

// Our environment with the changes of a rank and without the shared secret, as NAME=value.
std::vector<std::string> environment_of(const RankSpec& spec, char** ours);

}  // namespace mgpu::launcher
