// The part of EventLoop that follows the ends of processes: of ranks, of their orphans, and of an
// attempt, up to the decision about a restart.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "launcher/event_loop/event_loop.hpp"
#include "launcher/event_loop/first_failure.hpp"
#include "launcher/event_loop/write_file.hpp"
#include "launcher/ranks/guard.hpp"
#include "rendezvous/base/exit_status.hpp"

namespace mgpu::launcher {
namespace {

constexpr auto kUnkillable = std::chrono::seconds(10);
constexpr auto kGuardRetry = std::chrono::seconds(1);

// The limit of CPU time that ranks inherit, in seconds; 0: there is none.
std::uint64_t cpu_limit(rlim_t rlimit::* kind) {
  rlimit limits{};
  if (::getrlimit(RLIMIT_CPU, &limits) != 0 || limits.*kind == RLIM_INFINITY) return 0;
  return limits.*kind;
}

}  // namespace

void EventLoop::not_started(int local_rank, int error) {
  ranks_.clear(local_rank);
  const bool own_problem = !start_problem_.empty();  // of this process, not of the program
  const ExitReport report{.code = own_problem ? exit_status::kFailure : exit_status::kCannotExecute,
                          .exec_error = error};
  record_exit(local_rank, {report, Clock::now()}, error == 0);
  feed(RankExited{local_rank, report});
}

void EventLoop::record_exit(int local_rank, const WorkerExit& end, bool ended_by_us) {
  journal_.rank_exited({.local_rank = local_rank,
                        .pid = ranks_.pid_of(local_rank),
                        .report = end.report,
                        .ended_by_us = ended_by_us,
                        .peak_bytes = end.peak_bytes,
                        .cpu_time = end.cpu_time,
                        .suspended = std::ranges::find(suspended_, local_rank) != suspended_.end()},
                       end.when);
}

// Collects the exit that woke the loop, then all others that are already available: a rank that
// died before any signal was sent died by itself.
void EventLoop::collect_exits(int first) {
  if (session_) session_->ranks_exited();
  std::vector<RankExited> ended;
  collect_exit(first, ended);
  for (int rank = 0; rank < ranks_.size(); ++rank) collect_exit(rank, ended);
  const int failed_before = supervisor_.first_failed();
  const auto failed = [](const RankExited& event) { return !event.report.clean(); };
  if (failed_before < 0 && std::ranges::any_of(ended, failed))
    suspended_ = hang_collector_.suspended();
  if (ended.size() == 1 && failed(ended.front()))
    ended.front().replaceable = can_replace(ended.front());
  const int lost_before = supervisor_.failed_while_stopping();
  for (const auto& event : ended) feed(event);
  if (lost_before < 0 && supervisor_.failed_while_stopping() >= 0)
    note_failure_while_stopping(ended);
  if (session_ && failed_before < 0 && supervisor_.first_failed() >= 0) session_->report_failure();
}

void EventLoop::note_failure_while_stopping(const std::vector<RankExited>& ended) {
  const auto end = std::ranges::find(ended, supervisor_.failed_while_stopping(), &RankExited::rank);
  if (end == ended.end()) return;
  journal_.note(fmt::format("rank {} {} while the ranks stopped{}",
                            plan_.placement.base_rank + end->rank, describe(end->report),
                            aborting_.empty() ? "" : "; the others do not wait for it"));
}

// Whether a new process may take the place of this rank, which has ended alone.
bool EventLoop::can_replace(const RankExited& end) {
  if (supervisor_.stopping() || !replacement_.possible(end.rank, end.report)) return false;
  const auto tail = output_.stderr_tail(end.rank);
  return replacement_.permitted(diagnose({.report = end.report,
                                          .stderr_tail = tail,
                                          .memory = memory_facts(end.rank),
                                          .gpu_fault = kernel_log_.gpu_fault()}));
}

MemoryFacts EventLoop::memory_facts(int local_rank) {
  auto facts = memory_.facts(local_rank);
  memory_monitor_.complete(facts, local_rank, ranks_.pid_of(local_rank), kernel_log_.oom_kills());
  return facts;
}

void EventLoop::collect_exit(int local_rank, std::vector<RankExited>& ended) {
  const auto end = ranks_.collect(local_rank);
  if (!end) return;
  containment_.rank_reaped(local_rank);
  progress_.forget(plan_.placement.base_rank + local_rank);
  record_exit(local_rank, *end, supervisor_.stopping());
  ended.push_back({local_rank, end->report});
}

void EventLoop::carry_out(const KillAll&) {
  killing_ = true;
  unkillable_.start(kUnkillable, [this] { abandon_unkillable(); });
  ranks_.signal_groups(SIGKILL);
  containment_.kill_all();
}

// A process in an uninterruptible call cannot be killed. It is reported and left behind.
void EventLoop::abandon_unkillable() {
  for (const pid_t pid : containment_.orphan_processes())
    journal_.note(fmt::format(
        "process {} did not exit after SIGKILL (stuck in the kernel); leaving it behind", pid));
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_.running(rank)) continue;
    ranks_.abandon(rank);
    const ExitReport killed{.signal = SIGKILL};
    record_exit(rank, {killed, Clock::now()}, supervisor_.stopping());
    feed(RankExited{rank, killed});
  }
  sweeping_ = false;
  journal_.attempt().last_step = worker_socket_.last_step();
  feed(TreeEmpty{});
}

void EventLoop::carry_out(const Sweep&) {
  memory_monitor_.end_attempt();
  sweeping_ = true;
  sweep();
}

void EventLoop::sweep() {
  if (!sweeping_) return;
  if (containment_.empty()) {
    sweeping_ = false;
    journal_.attempt().last_step = worker_socket_.last_step();
    grace_.cancel();
    unkillable_.cancel();
    feed(TreeEmpty{});
    return;
  }
  killing_ ? containment_.kill_all() : containment_.request_stop();
}

// SIGCHLD: an orphan process exited, a rank was suspended, or the guard died.
void EventLoop::child_changed() {
  for (const int rank : ranks_suspended_ ? std::vector<int>() : ranks_.newly_stopped())
    journal_.note(
        fmt::format("rank {} (pid {}) was suspended by a signal; kill -CONT {} resumes it",
                    plan_.placement.base_rank + rank, ranks_.pid_of(rank), ranks_.pid_of(rank)));
  if (!containment_.child_changed()) retry_guard();
  sweep();
}

// The limit of processes or memory may be reached now, and not later.
void EventLoop::retry_guard() {
  if (!std::exchange(unguarded_, true))
    journal_.note(fmt::format(
        "{} has died and cannot be started again; trying again every second (until then, ranks "
        "would survive a kill -9 of mgpu-run)",
        Guard::kName));
  guard_retry_.start(kGuardRetry, [this] {
    if (!containment_.child_changed()) return retry_guard();
    unguarded_ = false;
  });
}

void EventLoop::carry_out(const AssessFailure&) {
  output_.end_attempt();
  if (session_) return report_to_leader();
  assess_first_failure([this] { decide_restart_here(); });
}

void EventLoop::decide_restart_here() {
  const auto& end = journal_.attempt();
  auto decision =
      decide_restart(journal_.failed_attempts(), {options_.max_restarts, options_.retry_delay,
                                                  options_.restarts_renewed, options_.on_failure});
  if (decision.policy == FailurePolicy::restart_changed) ++attempt_.oom_count;
  journal_.attempt().policy = name_of(decision.policy);
  journal_.set_remark(decision.why);
  if (decision.restart && !supervisor_.stop_signal())
    journal_.note(restart_line(end, journal_.job(), decision.counted));
  feed(FailureAssessed{std::move(decision)});
}

// This node's part of the round is over.
void EventLoop::report_to_leader() {
  if (!session_->ranks_ended()) return;
  const auto report = [this] {
    session_->report_result(journal_.attempt(), journal_.attempt_began());
  };
  supervisor_.first_failed() >= 0 ? assess_first_failure(report) : report();
}

// Calls `then` when the failure is described, unless this has become pointless by then.
void EventLoop::assess_first_failure(std::function<void()> then) {
  const int failed = supervisor_.first_failed();
  const auto stderr_of = [this](int rank) { return output_.stderr_tail(rank); };
  const int root = progress_.hang() || !replacement_.late().empty()
                       ? failed
                       : rank_with_cause(journal_.attempt(), failed, stderr_of);
  FailureTraces traces{.log_dir = log_dir_of(root),
                       .stderr_tail = output_.stderr_tail(root),
                       .memory = memory_facts(root),
                       .python = plan_.command.python,
                       .start_problem = start_problem_,
                       .gpu_fault = kernel_log_.gpu_fault(),
                       .stopped_by = supervisor_.stop_signal() ? journal_.job().scheduler_job : "",
                       .soft_cpu_limit = cpu_limit(&rlimit::rlim_cur),
                       .hard_cpu_limit = cpu_limit(&rlimit::rlim_max),
                       .local_rank = root,
                       .hang = progress_.hang(),
                       .late_replacement = replacement_.late()};
  output_.save_tails(root, traces.log_dir);
  const auto path = error_file_path(traces.log_dir);
  output_.files().ask(
      [path] { return path.empty() ? std::nullopt : read_error_file(path); },
      [this, failed, path, attempt = supervisor_.attempt(), traces = std::move(traces),
       then = std::move(then)](auto error_file) mutable {
        if (!supervisor_.assessing() || supervisor_.attempt() != attempt) return;
        traces.error_file = std::move(error_file);
        if (describe_first_failure(journal_.attempt(), failed, std::move(traces)))
          output_.files().run(
              [path, text = to_json(*journal_.attempt().error_file)] { write_file(path, text); });
        then();
      });
}

// Empty if there is none, as of a rank that was not started.
std::string EventLoop::log_dir_of(int local_rank) const {
  const auto rank = static_cast<size_t>(local_rank);
  return rank < specs_.size() ? specs_[rank].log_dir : std::string();
}

}  // namespace mgpu::launcher
