#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/lifecycle/report.hpp"
#include "launcher/lifecycle/step_times.hpp"
#include "launcher/lifecycle/supervisor.hpp"
#include "launcher/nodes/cluster_member.hpp"
#include "launcher/nodes/job_registry.hpp"
#include "launcher/options/options.hpp"
#include "launcher/plan/job_plan.hpp"
#include "launcher/ranks/worker.hpp"

namespace mgpu::launcher {

// The conversation of this node's agent with the leader of a multi-node job. It reports what the
// leader decides to its owner, and how the ranks of this node end to the leader. It also sets the
// time until which the ranks may run while this process is frozen.
class ClusterSession {
 public:
  struct Round {
    int number = 0;
    Placement placement;
    Attempt attempt;        // what the ranks receive; without a log folder
    std::string interface;  // the network interface towards the leader; empty: not known
    std::chrono::milliseconds grace{0};  // the longest grace period of the nodes
  };
  struct Callbacks {
    std::function<void(const Round&)> round_started;
    // The ranks of this round must stop, because the leader requests it or is lost.
    std::function<void(const RoundStopRequested&)> stop_requested;
    std::function<void(int status, const std::string& remark)> job_ended;
    // How long no rank of the job has been active.
    std::function<void(rendezvous::Nanoseconds)> job_idle;
    // All ranks of the job are suspended, because a node is, or resumed.
    std::function<void()> suspend_ranks, resume_ranks;
    // The process that started this agent over ssh has exited.
    std::function<void()> parent_exited;
    std::function<void(int socket)> connected;
    // See Guard.
    std::function<void(rendezvous::Nanoseconds when)> kill_by;
    std::function<void(std::string_view)> print_note;
  };

  // The plan must have a rendezvous plan; `host` is this node's name. All references must outlive
  // the session.
  ClusterSession(boost::asio::io_context& io, const Options& options, const JobPlan& plan,
                 const std::string& host, const Supervisor& supervisor, Callbacks callbacks);
  ClusterSession(const ClusterSession&) = delete;
  ClusterSession& operator=(const ClusterSession&) = delete;

  void start();

  // Before the ends of ranks are judged. After this machine has slept, the guard may have killed
  // the ranks before this process looked at the time: then the leader is lost, and no rank failed.
  // The leader waits for a node that asked it to, however long that takes.
  void ranks_exited();
  // The ranks of this node are being stopped: because one failed, or because this process received
  // a signal. The ranks of the other nodes then stop at the same time.
  void report_failure();
  void report_stop(Signal signal);
  // How far the ranks of this node are, for the status of the job. May be called often: what has
  // not changed is not sent, and the more nodes the job has the less often each one reports.
  // `idle`: since when no rank of this node was active; empty: not watched.
  void report_progress(const std::vector<RankProgress>& progress,
                       std::optional<rendezvous::Nanoseconds> idle);
  // This process will be suspended, and its ranks are. Calls `ready` when the other nodes wait for
  // it, or when they cannot.
  void suspend(const std::function<void()>& ready);
  // The process runs again. False: its ranks may be resumed now. Otherwise, or if the leader is
  // lost meanwhile, a callback follows.
  bool resumed();
  // After resumed(): the leader has not confirmed yet that it still counts on this node.
  bool unconfirmed() const { return unconfirmed_; }
  // This node's part of the round is over and none of its processes is left. True if the leader
  // waits for the result, which report_result sends; else this node looks for the leader again.
  bool ranks_ended();
  void report_result(const AttemptResult& attempt, Clock::time_point began);
  // The same, but this node was asked to stop by this signal: it leaves the job.
  void leave(Signal signal);
  // Calls `done` when the other nodes have been informed of the job's end.
  void finish(std::function<void()> done);

  // The result of the job over all nodes; null if the leader is on another node.
  const JobResult* history() const { return member_.history(); }

 private:
  ClusterMember::Callbacks member_callbacks();
  void watch_stdin();
  void start_round(const rendezvous::Begin& begin, const std::string& address, int port);
  void renew_lease(rendezvous::Nanoseconds until);
  void lose_leader(const std::string& why);
  void on_pause(const rendezvous::Pause& pause);
  void resume_if_confirmed();
  void forget_pause();

  const Options& options_;
  const rendezvous::Credentials& credentials_;
  int nproc_;
  const Supervisor& supervisor_;
  Callbacks callbacks_;
  NoteThread notes_;
  ClusterMember member_;
  boost::asio::posix::stream_descriptor stdin_;
  rendezvous::Nanoseconds grace_{0};  // of the round
  int nodes_ = 1;                     // of the round
  std::vector<RankProgress> reported_;
  rendezvous::Nanoseconds next_report_{0};
  bool lost_leader_ = false;  // in this round
  bool paused_ = false;       // the ranks are suspended, here or by the leader
  bool resuming_ = false;     // they may run again once the lease is valid
  bool asked_ = false;        // the leader was informed that this process is suspended
  bool unconfirmed_ = false;
  bool leader_suspended_ = false;
  rendezvous::Nanoseconds lease_{0};  // until when the leader certainly counts this node as alive
};

// The message about the end of this node's part of a round, without its time. `attempt` has its
// first failure if a rank failed; `stopped`: the ranks were signalled to stop.
rendezvous::NodeEnded node_ended(int round, const AttemptResult& attempt, bool stopped);

}  // namespace mgpu::launcher
