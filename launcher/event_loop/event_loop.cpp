#include "launcher/event_loop/event_loop.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "launcher/ranks/process_tree.hpp"
#include "rendezvous/base/exit_status.hpp"

namespace mgpu::launcher {
namespace {

constexpr auto kUnkillable = std::chrono::seconds(10);

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

std::string get_env(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

EventLoop::EventLoop(const Options& options, JobPlan plan, const Inherited& inherited, char** argv)
    : options_(options),
      plan_(std::move(plan)),
      inherited_(inherited),
      containment_([this](pid_t pid) { return ranks_.owns(pid); }, argv),
      memory_(containment_.our_cgroups(), containment_.cgroup()),
      logs_(options.log_dir, options.rdzv_id),
      output_(io_, options, plan_.placement.nproc),
      ranks_(io_, output_, plan_.placement.nproc,
             {.inherited = inherited,
              .workdir = options.workdir,
              .own_stdin = options.rdzv_token_stdin,
              .whole_group = options.signal_group || !plan_.command.python}),
      rendezvous_endpoint_(io_, options),
      stdin_(io_),
      supervisor_(plan_.placement.nproc, plan_.rendezvous_plan.has_value()),
      signals_(io_),
      grace_(io_),
      delay_(io_),
      unkillable_(io_),
      job_began_(Clock::now()),
      peaks_(static_cast<size_t>(plan_.placement.nproc)) {
  plan_.facts.job_cookie = join_cookies(get_env(kCookieVariable), containment_.cookie());
  ranks_.on_change([this](int local_rank) { collect_exits(local_rank); });
  if (!logs_.problem().empty()) note(logs_.problem());

  history_.target = options_.target;
  history_.host = host_name();
  history_.run_id = plan_.facts.run_id;
  history_.node_rank = plan_.placement.node_rank;
  history_.max_restarts = options_.max_restarts;
}

int EventLoop::run() {
  watch_signals();
  if (plan_.rendezvous_plan) join_cluster();
  pump(supervisor_.start());
  io_.run();
  return status_;
}

// Carrying out an action may cause further events; they are queued.
void EventLoop::feed(Event event) {
  events_.push_back(std::move(event));
  if (!pumping_) pump({});
}

void EventLoop::pump(const std::vector<Action>& first) {
  pumping_ = true;
  for (const Action& action : first) std::visit([this](const auto& a) { carry_out(a); }, action);
  while (!events_.empty()) {
    const Event next = std::move(events_.front());
    events_.pop_front();
    for (const Action& action : supervisor_.handle(next))
      std::visit([this](const auto& a) { carry_out(a); }, action);
  }
  pumping_ = false;
}

void EventLoop::carry_out(const StartRanks& action) {
  attempt_began_ = Clock::now();
  killing_ = false;
  ranks_.start_in(containment_.begin_attempt());
  memory_.begin_attempt();
  if (!member_) {
    rendezvous_endpoint_.begin_attempt();
    round_address_ = rendezvous_endpoint_.address();
    round_port_ = rendezvous_endpoint_.port();
    restarts_ = action.attempt;
  }
  history_.attempts.push_back({.number = action.attempt, .started_at = time_of_day()});
  const auto log_dir = logs_.begin_attempt(action.attempt, ranks_.size());
  if (!logs_.problem().empty()) note(logs_.problem());
  const Attempt next{.number = restarts_,
                     .oom_count = oom_count_,
                     .master_addr = round_address_,
                     .master_port = round_port_,
                     .leader_addr = member_ ? leader_address_ : round_address_,
                     .log_dir = log_dir};
  specs_ = make_rank_specs(options_, plan_.command, plan_.placement, next, plan_.facts);
  start_ranks();
}

// A rank that cannot be started counts as failed; the ranks after it are not started.
void EventLoop::start_ranks() {
  bool all_started = true;
  for (const auto& spec : specs_) {
    if (!all_started) {
      not_started(spec.local_rank, 0);
    } else if (const auto problem = ranks_.start(spec, prefix_of(spec))) {
      all_started = false;
      note(*problem);
      not_started(spec.local_rank, EAGAIN);
    }
  }
}

void EventLoop::not_started(int local_rank, int error) {
  ranks_.clear(local_rank);
  const ExitReport report{.code = exit_status::kCannotExecute, .exec_error = error};
  record_exit(local_rank, report, Clock::now()).ended_by_us = error == 0;
  feed(RankExited{local_rank, report});
}

RankResult& EventLoop::record_exit(int local_rank, const ExitReport& report,
                                   Clock::time_point when) {
  attempt().ranks.push_back({.rank = plan_.placement.base_rank + local_rank,
                             .local_rank = local_rank,
                             .pid = ranks_.pid_of(local_rank),
                             .report = report,
                             .ended_by_us = supervisor_.stopping(),
                             .after_start = between(attempt_began_, when),
                             .node_rank = plan_.placement.node_rank,
                             .host = member_ ? history_.host : std::string()});
  return attempt().ranks.back();
}

// Collects the exit that woke the loop, then all others that are already available: a rank that
// died before any signal was sent died by itself.
void EventLoop::collect_exits(int first) {
  std::vector<RankExited> ended;
  collect_exit(first, ended);
  for (int rank = 0; rank < ranks_.size(); ++rank) collect_exit(rank, ended);
  const int failed_before = supervisor_.first_failed();
  for (const auto& event : ended) feed(event);
  if (member_ && failed_before < 0 && supervisor_.first_failed() >= 0)
    member_->report_stopping(supervisor_.attempt(), 0);
}

void EventLoop::collect_exit(int local_rank, std::vector<RankExited>& ended) {
  const auto end = ranks_.collect(local_rank);
  if (!end) return;
  peaks_[static_cast<size_t>(local_rank)] = end->peak_bytes;
  record_exit(local_rank, end->report, end->when);
  ended.push_back({local_rank, end->report});
}

void EventLoop::carry_out(const SignalRank& action) {
  ranks_.request_stop(action.rank, action.signo);
}

void EventLoop::carry_out(const StartGrace&) {
  grace_.start(options_.grace, [this] { feed(GraceExpired{}); });
}

void EventLoop::carry_out(const KillAll&) {
  killing_ = true;
  ranks_.signal_groups(SIGKILL);
  containment_.kill_all();
  unkillable_.start(kUnkillable, [this] { abandon_unkillable(); });
}

// A process in an uninterruptible call cannot be killed. It is reported and left behind.
void EventLoop::abandon_unkillable() {
  for (const pid_t pid : containment_.orphan_processes())
    note(fmt::format(
        "process {} did not exit after SIGKILL (stuck in the kernel); leaving it behind", pid));
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_.running(rank)) continue;
    ranks_.abandon(rank);
    const ExitReport killed{.signo = SIGKILL};
    record_exit(rank, killed, Clock::now());
    feed(RankExited{rank, killed});
  }
  sweeping_ = false;
  feed(TreeEmpty{});
}

void EventLoop::carry_out(const Sweep&) {
  sweeping_ = true;
  sweep();
}

void EventLoop::sweep() {
  if (!sweeping_) return;
  if (containment_.empty()) {
    sweeping_ = false;
    grace_.cancel();
    unkillable_.cancel();
    feed(TreeEmpty{});
    return;
  }
  killing_ ? containment_.kill_all() : containment_.request_stop();
}

// SIGCHLD: an orphan process exited, a rank was suspended, or the guard died.
void EventLoop::child_changed() {
  for (const int rank : ranks_.newly_stopped())
    note(fmt::format("rank {} (pid {}) was suspended by a signal; kill -CONT {} resumes it",
                     plan_.placement.base_rank + rank, ranks_.pid_of(rank), ranks_.pid_of(rank)));
  containment_.child_changed();
  sweep();
}

void EventLoop::carry_out(const AssessFailure&) {
  output_.end_attempt();
  if (member_) return report_to_leader();
  describe_first_failure();
  const auto& end = attempt();
  const auto lasted = std::chrono::duration_cast<Milliseconds>(end.first_failure->after_start);
  failures_.push_back({end.cause.kind, lasted});
  if (is_oom(end.cause.kind)) ++oom_count_;
  auto decision = decide_restart(failures_, {options_.max_restarts, options_.retry_delay});
  history_.remark = decision.why;
  if (decision.restart && supervisor_.stop_signal() == 0)
    note(restart_line(end, options_.max_restarts));
  feed(FailureAssessed{std::move(decision)});
}

void EventLoop::carry_out(const StartDelay& action) {
  delay_.start(action.delay, [this] { feed(DelayExpired{}); });
}

void EventLoop::carry_out(const Finish& action) {
  finished_ = true;
  status_ = action.status;
  if (member_) return finish_in_cluster();
  output_.end_attempt();
  history_.status = status_;
  history_.stop_signal = supervisor_.stop_signal();
  history_.lasted = between(job_began_, Clock::now());
  if (status_ != 0) {
    output_.print_line(failure_report(history_));
    write_error_file();
  } else {
    logs_.job_succeeded();
  }
  write_report();
  containment_.release();
  output_.when_flushed([this] { io_.stop(); });
}

}  // namespace mgpu::launcher
