#pragma once

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/event_loop/cluster_session.hpp"
#include "launcher/event_loop/event_pump.hpp"
#include "launcher/event_loop/hang_collector.hpp"
#include "launcher/event_loop/journal.hpp"
#include "launcher/event_loop/progress_watch.hpp"
#include "launcher/event_loop/rank_replacement.hpp"
#include "launcher/event_loop/signal_watch.hpp"
#include "launcher/event_loop/status_note.hpp"
#include "launcher/lifecycle/supervisor.hpp"
#include "launcher/memory/monitor.hpp"
#include "launcher/nodes/rendezvous_endpoint.hpp"
#include "launcher/options/options.hpp"
#include "launcher/output/log_folder.hpp"
#include "launcher/output/output.hpp"
#include "launcher/plan/job_plan.hpp"
#include "launcher/ranks/containment.hpp"
#include "launcher/ranks/inherited.hpp"
#include "launcher/ranks/kernel_log.hpp"
#include "launcher/ranks/memory_watch.hpp"
#include "launcher/ranks/pausable_timer.hpp"
#include "launcher/ranks/rank_group.hpp"
#include "launcher/ranks/worker_socket.hpp"

namespace mgpu::launcher {

// The only place that waits. It turns signals, timers, sockets and process exits into events for
// the Supervisor and carries out the actions that the Supervisor returns. One thread; only run()
// itself blocks.
class EventLoop {
 public:
  EventLoop(const Options& options, JobPlan plan, const Inherited& inherited, char** argv);
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Runs the job to its end and returns the exit status.
  int run();

 private:
  EventPump::Callbacks pump_callbacks();
  void feed(Event event) { pump_.feed(std::move(event)); }
  void action_failed(const Action& action, const std::exception& problem);
  void fail(const std::exception& problem);
  void carry_out(const StartRanks& action);
  void carry_out(const SignalRank& action);
  void carry_out(const ReplaceRank& action);
  void carry_out(const AbortRank& action);
  void carry_out(const ReportFailure&);
  void carry_out(const StartGrace& action);
  void carry_out(const KillAll&);
  void carry_out(const Sweep&);
  void carry_out(const AssessFailure&);
  void carry_out(const LeaveJob& action);
  void carry_out(const StartDelay& action);
  void carry_out(const Finish& action);

  // Starting.
  void folder_created(int attempt, LogFolder::AttemptFolder folder);
  void start_ranks();
  bool start_rank(const RankSpec& spec);
  void start_failed(const std::exception& problem);
  void not_started(int local_rank, int error);

  // Process exits.
  void record_exit(int local_rank, const WorkerExit& end, bool ended_by_us);
  void collect_exits(int first);
  void note_failure_while_stopping(const std::vector<RankExited>& ended);
  void collect_exit(int local_rank, std::vector<RankExited>& ended);
  void child_changed();
  void retry_guard();
  void sweep();
  void abandon_unkillable();
  bool can_replace(const RankExited& end);
  MemoryFacts memory_facts(int local_rank);
  void assess_first_failure(std::function<void()> then);
  void decide_restart_here();
  std::string log_dir_of(int local_rank) const;

  // Hangs.
  ProgressWatch::Callbacks progress_callbacks();
  ActivitySigns activity_signs() const;
  ActivitySample activity() const;
  void collect_evidence_of(const Hang& hang, const ProgressWatch::Done& done);
  void end_hang(const Hang& hang);

  // Signals to this process.
  SignalWatch::Callbacks signal_callbacks();
  MemoryMonitor::Callbacks memory_callbacks();
  void stop_job(Signal signal);
  void show_status();
  void suspend(const std::function<void()>& ready);
  void resume();
  void suspend_ranks();
  void resume_ranks();

  // Multi-node jobs.
  void join_cluster();
  void start_round(const ClusterSession::Round& round);
  void report_to_leader();

  const Options& options_;
  JobPlan plan_;
  boost::asio::io_context io_{1};
  Containment containment_;
  MemoryWatch memory_;
  KernelLog kernel_log_;
  LogFolder logs_;
  Output output_;
  Journal journal_;
  WorkerSocket worker_socket_;
  RankGroup ranks_;  // destroyed before containment_: ranks are killed before orphan processes
  MemoryMonitor memory_monitor_;
  RankReplacement replacement_;
  RendezvousEndpoint rendezvous_endpoint_;
  Supervisor supervisor_;
  EventPump pump_;
  ProgressWatch progress_;
  HangCollector hang_collector_;
  std::unique_ptr<ClusterSession> session_;  // null: single-node job
  std::optional<StatusNote> status_note_;    // of a single-node job
  std::chrono::milliseconds grace_period_;
  PausableTimer grace_, replacing_, delay_, unkillable_, guard_retry_, abort_, started_;

  Attempt attempt_;  // the current one
  std::vector<RankSpec> specs_;
  std::vector<int> suspended_;    // local ranks, when the first one failed
  std::vector<int> aborting_;     // local ranks with an abort request
  std::optional<int> starting_;   // the attempt whose log folder is being created
  std::string start_problem_;     // why the current attempt could not be started
  bool start_cancelled_ = false;  // and whose ranks are not to be started any more
  bool sweeping_ = false;
  bool killing_ = false;
  bool unguarded_ = false;
  bool ranks_suspended_ = false;
  bool failed_at_end_ = false;  // an exception after the end of the job
  std::optional<Signal> deferred_stop_;
  SignalWatch signals_;
};

}  // namespace mgpu::launcher
