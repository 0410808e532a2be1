#include "launcher/event_loop/event_loop.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "launcher/event_loop/rank_prefix.hpp"
#include "launcher/event_loop/write_file.hpp"
#include "launcher/ranks/process_tree.hpp"
#include "launcher/ranks/run_briefly.hpp"
#include "rendezvous/base/exit_status.hpp"
#include "rendezvous/base/host_name.hpp"
#include "rendezvous/base/unused_memory.hpp"
#include "rendezvous/contract.hpp"

namespace mgpu::launcher {
namespace {

// A rank that received an abort request exits in less time, unless it hangs.
constexpr auto kAbort = std::chrono::seconds(2);
// After the ranks have started: by then what only a start needs has been used.
constexpr auto kStarted = std::chrono::seconds(3);

std::string own_name() {
  const std::string name = rendezvous::host_name();
  return name.empty() ? "localhost" : name;
}

std::string get_env(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Whether the job is `mgpu-run RECIPE --check`, which only prints.
bool only_checks(const Options& options) {
  return options.is_recipe() && std::ranges::find(options.args, "--check") != options.args.end();
}

}  // namespace

EventLoop::EventLoop(const Options& options, JobPlan plan, const Inherited& inherited, char** argv)
    : options_(options),
      plan_(std::move(plan)),
      containment_(
          plan_.placement.nproc,
          [this](pid_t pid) { return ranks_.owns(pid) || runs_briefly(pid); },
          options.worker_memory, argv),
      memory_(containment_.our_cgroups(), containment_.cgroup(), &containment_.rank_cgroups()),
      logs_(options.log_dir, options.log_folder_name()),
      output_(io_, options, plan_.placement.nproc),
      journal_(
          options, plan_, own_name(), [this](auto line) { output_.print_line(line); },
          [this](const auto& path, auto text, auto failed) {
            output_.files().ask([path, text = std::move(text)] { return write_file(path, text); },
                                [failed](int error) {
                                  if (error != 0) failed(error);
                                });
          }),
      worker_socket_(io_, [this](auto line) { journal_.note(line); }),
      ranks_(io_, output_, plan_.placement.nproc,
             {.inherited = inherited,
              .workdir = options.workdir,
              .own_stdin = options.rdzv_token_stdin,
              .whole_group = options.signal_group || !plan_.command.python}),
      memory_monitor_(io_, plan_.facts.gpus, memory_.shared_cgroup(), options.worker_memory,
                      memory_callbacks()),
      replacement_(replacing_, options, plan_, worker_socket_, ranks_, journal_,
                   [this](int rank) {
                     const bool running = supervisor_.active() && !supervisor_.stopping();
                     feed(HangFound{rank});
                     return running;
                   }),
      rendezvous_endpoint_(io_, options),
      supervisor_(plan_.placement.nproc, plan_.rendezvous_plan.has_value()),
      pump_(supervisor_, pump_callbacks()),
      progress_(io_, options.hang_timeout, activity_signs(), progress_callbacks()),
      hang_collector_(io_, worker_socket_, ranks_, inherited),
      grace_period_(options.grace),
      grace_(io_),
      replacing_(io_),
      delay_(io_),
      unkillable_(io_),
      guard_retry_(io_),
      abort_(io_),
      started_(io_),
      signals_(io_, options.signals_to_handle, inherited, signal_callbacks()) {
  plan_.facts.job_cookie = join_cookies(get_env(kCookieVariable), containment_.cookie());
  plan_.facts.worker_socket = worker_socket_.address();
  worker_socket_.on_heartbeat([this](const Heartbeat& heard) { progress_.record(heard); },
                              [this](int rank) { progress_.forget(rank); });
  if (!worker_socket_.problem().empty()) journal_.note(worker_socket_.problem());
  if (activity_signs().gpu && plan_.facts.gpus.empty())
    journal_.note("--hang-activity gpu has no effect: the job uses no GPU of this node");
  ranks_.on_change([this](int local_rank) { collect_exits(local_rank); });
  if (!logs_.problem().empty()) journal_.note(logs_.problem());
}

int EventLoop::run() {
  if (plan_.rendezvous_plan)
    join_cluster();
  else
    status_note_.emplace(output_.files(), options_, plan_.placement, journal_.host());
  pump_.start();
  while (!io_.stopped()) {
    try {
      io_.run();
    } catch (const std::exception& problem) {
      fail(problem);
    } catch (...) {
      fail(std::runtime_error("an exception without a description"));
    }
  }
  const bool failed = failed_at_end_ || (only_checks(options_) && output_.lost());
  return failed && journal_.status() == 0 ? exit_status::kFailure : journal_.status();
}

EventPump::Callbacks EventLoop::pump_callbacks() {
  return {.carry_out =
              [this](const Action& action) {
                std::visit([this](const auto& a) { carry_out(a); }, action);
              },
          .failed = [this](const Action& action,
                           const std::exception& problem) { action_failed(action, problem); },
          .settled = [this] { show_status(); }};
}

SignalWatch::Callbacks EventLoop::signal_callbacks() {
  // Once the job has finished, only output to a slow reader is pending; a signal ends the wait.
  return {.child_changed = [this] { child_changed(); },
          .stop_requested =
              [this](Signal signal) { supervisor_.done() ? io_.stop() : stop_job(signal); },
          .kill_requested = [this] { supervisor_.done() ? io_.stop() : feed(KillRequested{}); },
          .suspending = [this](const auto& ready) { suspend(ready); },
          .resumed = [this] { resume(); },
          .passed_on =
              [this](Signal signal) {
                if (signal == SIGWINCH) output_.resize_terminals();
                ranks_.signal_leaders(signal);
              }};
}

// The ranks of the other nodes get the signal at the same time, not after ours have exited.
void EventLoop::stop_job(Signal signal) {
  // Ranks that are stopped run until they have exited. They may only if the leader counts on them.
  if (session_ && session_->unconfirmed()) {
    deferred_stop_ = signal;
    return;
  }
  if (session_) session_->report_stop(signal);
  feed(StopRequested{signal});
}

// The ranks are in their own sessions, where the terminal's ^Z does not reach them and the kernel
// discards SIGTSTP, so they get SIGSTOP.
void EventLoop::suspend_ranks() {
  ranks_suspended_ = true;
  for (auto* timer : {&grace_, &replacing_, &delay_, &unkillable_, &abort_}) timer->pause();
  progress_.pause();
  ranks_.signal_groups(SIGSTOP);
}

void EventLoop::resume_ranks() {
  ranks_.signal_groups(SIGCONT);
  ranks_.newly_stopped();  // caused by suspend_ranks(), not to be reported
  ranks_suspended_ = false;
  for (auto* timer : {&grace_, &replacing_, &delay_, &unkillable_, &abort_}) timer->resume();
  progress_.resume();
  if (const auto signal = std::exchange(deferred_stop_, std::nullopt)) stop_job(*signal);
}

void EventLoop::suspend(const std::function<void()>& ready) {
  suspend_ranks();
  session_ ? session_->suspend(ready) : ready();
}

// In a multi-node job the ranks continue when all nodes do.
void EventLoop::resume() {
  if (!session_ || !session_->resumed()) resume_ranks();
}

void EventLoop::join_cluster() {
  session_ = std::make_unique<ClusterSession>(
      io_, options_, plan_, journal_.host(), supervisor_,
      ClusterSession::Callbacks{
          .round_started = [this](const auto& round) { start_round(round); },
          .stop_requested =
              [this](const RoundStopRequested& stop) {
                if (stop.peer_failed && supervisor_.first_failed() < 0 && !ranks_suspended_)
                  suspended_ = hang_collector_.suspended();
                feed(stop);
                if (ranks_suspended_) resume_ranks();
              },
          .job_ended =
              [this](int status, const std::string& remark) {
                journal_.set_remark(remark);
                feed(JobFinished{status});
              },
          .job_idle =
              [this](auto idle) {
                progress_.set_job_idle(std::chrono::duration_cast<Milliseconds>(idle));
              },
          .suspend_ranks = [this] { suspend_ranks(); },
          .resume_ranks = [this] { resume_ranks(); },
          .parent_exited = [this] { stop_job(SIGTERM); },
          .connected = [this](int socket) { containment_.hold(socket); },
          .kill_by = [this](auto when) { containment_.kill_by(when); },
          .print_note = [this](auto line) { journal_.note(line); }});
  session_->start();
}

void EventLoop::start_round(const ClusterSession::Round& round) {
  plan_.placement = round.placement;
  // gloo would use the host name, which may not resolve or may belong to another network.
  if (!std::getenv(rendezvous::variable::kGlooInterface))
    plan_.facts.socket_interface = round.interface;
  journal_.round_started();
  attempt_ = round.attempt;
  grace_period_ = round.grace;
  feed(RoundStarted{round.number});
}

void EventLoop::action_failed(const Action& action, const std::exception& problem) {
  std::holds_alternative<StartRanks>(action) ? start_failed(problem) : fail(problem);
}

// The ranks that were not started count as failed, so there may be another attempt.
void EventLoop::start_failed(const std::exception& problem) {
  starting_.reset();
  start_problem_ = problem.what();
  bool reported = false;
  for (int rank = 0; rank < ranks_.size(); ++rank)
    if (!ranks_.running(rank)) not_started(rank, std::exchange(reported, true) ? 0 : ECANCELED);
  if (!reported) return fail(problem);
  output_.print_line(fmt::format("mgpu-run: {}", start_problem_));
}

// This process cannot do its work: the job ends, with a report.
void EventLoop::fail(const std::exception& problem) {
  output_.print_line(fmt::format("mgpu-run: {}", problem.what()));
  if (supervisor_.done()) {
    failed_at_end_ = true;
    return output_.when_flushed([this] { io_.stop(); });
  }
  journal_.set_remark(problem.what());
  feed(JobFinished{supervisor_.first_failed() >= 0 ? supervisor_.first_status()
                                                   : exit_status::kFailure});
}

void EventLoop::carry_out(const StartRanks& action) {
  journal_.attempt_started(action.attempt);
  specs_.clear();
  start_problem_.clear();
  suspended_.clear();
  output_.begin_attempt();
  killing_ = false;
  aborting_.clear();
  abort_.cancel();
  worker_socket_.begin_attempt(plan_.placement.base_rank, ranks_.size());
  progress_.begin_attempt(plan_.placement.nodes > 1 ? journal_.host() : std::string());
  hang_collector_.begin_attempt();
  replacement_.begin_attempt();
  ranks_.start_in(containment_.begin_attempt());
  memory_.begin_attempt(ranks_.size());
  kernel_log_.begin_attempt();
  if (!session_) {
    rendezvous_endpoint_.begin_attempt();
    attempt_.number = action.attempt;
    attempt_.replacement = replacement_.offered() ? std::optional(0) : std::nullopt;
    attempt_.master_addr = attempt_.leader_addr = rendezvous_endpoint_.address();
    attempt_.master_port = rendezvous_endpoint_.port();
  }
  starting_ = action.attempt;
  start_cancelled_ = false;
  const auto create_folder = [this, attempt = action.attempt] {
    output_.files().ask(
        logs_.begin_attempt(attempt, ranks_.size(), !plan_.facts.gpus.empty()),
        [this, attempt](auto folder) { folder_created(attempt, std::move(folder)); });
  };
  action.attempt == 0 ? create_folder() : memory_monitor_.when_drained(create_folder);
}

// The ranks start when their log folders exist, unless they were stopped before that.
void EventLoop::folder_created(int attempt, LogFolder::AttemptFolder folder) {
  if (starting_ != attempt) return;
  starting_.reset();
  if (start_cancelled_) return;
  pump_.resume(StartRanks{attempt}, [&] {  // all ranks are started before any event
    if (!folder.problem.empty()) journal_.note(folder.problem);
    attempt_.log_dir = std::move(folder.path);
    attempt_.nccl_dir = std::move(folder.nccl);
    specs_ = make_rank_specs(options_, plan_.command, plan_.placement, attempt_, plan_.facts);
    start_ranks();
    memory_monitor_.begin_attempt(plan_.placement.base_rank, ranks_.size(),
                                  containment_.rank_cgroups());
    started_.start(kStarted, [] {
      rendezvous::release_freed_memory();
      rendezvous::CodePages().unmap();
    });
  });
}

// A rank that cannot be started counts as failed; the ranks after it are not started.
void EventLoop::start_ranks() {
  bool all_started = true;
  for (const auto& spec : specs_) {
    if (all_started)
      all_started = start_rank(spec);
    else
      not_started(spec.local_rank, 0);
  }
  if (ranks_suspended_) ranks_.signal_groups(SIGSTOP);  // since the attempt was begun
}

bool EventLoop::start_rank(const RankSpec& spec) {
  if (const auto problem = ranks_.start(
          spec, rank_prefix(options_, spec, plan_.placement.node_rank, journal_.host()))) {
    journal_.note(*problem);
    not_started(spec.local_rank, EAGAIN);
    return false;
  }
  containment_.rank_started(spec.local_rank, ranks_.pid_of(spec.local_rank));
  return true;
}

void EventLoop::carry_out(const ReplaceRank& action) {
  attempt_.replacement = action.number;
  const auto rank = static_cast<size_t>(action.rank);
  specs_[rank] =
      make_rank_specs(options_, plan_.command, plan_.placement, attempt_, plan_.facts)[rank];
  replacement_.begin(action.rank, action.number);
  progress_.rank_replaced(plan_.placement.base_rank + action.rank);
  memory_monitor_.rank_replaced(action.rank);
  if (start_rank(specs_[rank]) && ranks_suspended_) ranks_.signal_group(action.rank, SIGSTOP);
}

void EventLoop::carry_out(const SignalRank& action) {
  if (starting_) {
    start_cancelled_ = true;
    return not_started(action.rank, 0);
  }
  ranks_.request_stop(action.rank, action.signal);
}

// A signal cannot tell "a peer has failed" from "save and stop"; the worker socket can.
void EventLoop::carry_out(const AbortRank& action) {
  if (starting_ || !worker_socket_.abort(plan_.placement.base_rank + action.rank)) {
    if (!action.signalled) carry_out(SignalRank{action.rank, SIGTERM});
    return;
  }
  ranks_.signal_group(action.rank, SIGCONT);
  aborting_.push_back(action.rank);
  abort_.start(kAbort, [this] {
    for (const int rank : aborting_) ranks_.signal_group(rank, SIGKILL);
  });
}

void EventLoop::carry_out(const ReportFailure&) {
  session_->report_failure();
}

void EventLoop::carry_out(const StartGrace& action) {
  const auto grace = action.after_failure && options_.failure_grace
                         ? std::min(*options_.failure_grace, grace_period_)
                         : grace_period_;
  grace_.start(grace, [this] { feed(GraceExpired{}); });
}

void EventLoop::carry_out(const LeaveJob& action) {
  output_.end_attempt();
  session_->leave(action.signal);
}

void EventLoop::carry_out(const StartDelay& action) {
  delay_.start(action.delay, [this] { feed(DelayExpired{}); });
}

void EventLoop::carry_out(const Finish& action) {
  output_.end_attempt();
  const Signal stop_signal = supervisor_.stop_signal();
  session_ ? journal_.finish_in_cluster(action.status, stop_signal, session_->history())
           : journal_.finish(action.status, stop_signal);
  if (status_note_) status_note_->remove();
  if (action.status == 0) output_.files().run(logs_.job_succeeded());
  containment_.release();
  const auto stop = [this] { output_.when_flushed([this] { io_.stop(); }); };
  session_ ? session_->finish(stop) : stop();
}

}  // namespace mgpu::launcher
