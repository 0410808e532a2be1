// The part of the event loop that communicates with the leader of a multi-node job.

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "launcher/event_loop/event_loop.hpp"
#include "launcher/nodes/job_registry.hpp"
#include "rendezvous/base/signal_names.hpp"
#include "rendezvous/contract.hpp"

namespace mgpu::launcher {

void EventLoop::join_cluster() {
  ClusterMember::Callbacks callbacks{
      .round_started = [this](const auto& begin, const auto& address,
                              int port) { start_round(begin, address, port); },
      .stop_requested =
          [this](const rendezvous::Stop& stop) { feed(RoundStopRequested{stop.signo}); },
      .leader_lost = [this](const std::string& why) { cut_off(why); },
      .job_ended =
          [this](int status, const std::string& remark) {
            history_.remark = remark;
            feed(JobFinished{status});
          },
      .lease_extended = [this](rendezvous::Nanoseconds until) { renew_lease(until); },
      .connected = [this](int socket) { containment_.hold(socket); },
      .print_note = [this](std::string_view line) { note(line); }};
  member_ =
      std::make_unique<ClusterMember>(io_, *plan_.rendezvous_plan,
                                      ClusterMember::Node{.job = options_.rdzv_id,
                                                          .target = options_.target,
                                                          .host = history_.host,
                                                          .nproc = plan_.placement.nproc,
                                                          .rank0_store = options_.rank0_store},
                                      plan_.credentials, std::move(callbacks));
  member_->start();
  if (options_.rdzv_token_stdin) {
    stdin_.assign(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
    watch_stdin();
  }
}

// The process that started this agent over ssh holds the other end; when it closes, the agent
// stops.
void EventLoop::watch_stdin() {
  stdin_.async_wait(stdin_.wait_read, [this](const boost::system::error_code& failed) {
    if (failed) return;
    char bytes[256];
    const auto got = ::read(stdin_.native_handle(), bytes, sizeof bytes);
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) return watch_stdin();
    note("stdin was closed: the process that started this agent has exited");
    on_stop_signal(SIGTERM);
  });
}

void EventLoop::start_round(const rendezvous::Begin& begin, const std::string& address, int port) {
  plan_.placement.node_rank = begin.node_rank;
  plan_.placement.nodes = begin.nodes;
  plan_.placement.base_rank = begin.base_rank;
  plan_.placement.world_size = begin.world_size;
  // gloo would use the host name, which may not resolve or may belong to another network.
  if (!std::getenv(rendezvous::variable::kGlooInterface))
    plan_.facts.socket_interface = member_->interface();
  history_.node_rank = begin.node_rank;
  history_.nodes = begin.nodes;
  restarts_ = begin.restarts;
  oom_count_ = begin.oom_count;
  round_address_ = address;
  round_port_ = port;
  leader_address_ = member_->shared_leader_address();
  // With munge the secret belongs to the leader, so it is not stored.
  std::optional<std::string> secret;
  if (!plan_.credentials.sealer) secret = plan_.credentials.secret;
  note_job(options_.rdzv_id,
           {member_->leader_address(), member_->leader_port(), std::move(secret)});
  feed(RoundStarted{begin.round});
  renew_lease(lease_);
}

// If this process is suspended while its ranks run, the guard kills them when the lease is over.
void EventLoop::renew_lease(rendezvous::Nanoseconds until) {
  lease_ = until;
  if (!finished_)
    containment_.kill_by(supervisor_.active() ? lease_ + options_.grace : Guard::kNever);
}

void EventLoop::cut_off(const std::string& why) {
  if (!supervisor_.active()) return member_->ranks_stopped();
  note(
      fmt::format("lost the leader ({}); stopping the ranks of this node and waiting for it", why));
  cut_off_ = true;
  feed(RoundStopRequested{SIGTERM});
}

// Called when this node's part of the round is over and none of its processes is left.
void EventLoop::report_to_leader() {
  containment_.kill_by(Guard::kNever);
  if (std::exchange(cut_off_, false)) return member_->ranks_stopped();
  using rendezvous::Outcome;
  rendezvous::NodeEnded end{.round = supervisor_.attempt(), .outcome = Outcome::done};
  auto when = Clock::now();
  if (supervisor_.first_failed() >= 0) {
    describe_first_failure();
    when = attempt_began_ + attempt().first_failure->after_start;
    end.outcome = Outcome::failed;
    end.cause = name_of(attempt().cause.kind);
    end.status = attempt().first_failure->report.shell_status();
    end.lasted = between(attempt_began_, when).count() * 1000;
  } else if (supervisor_.was_stopped()) {
    end.outcome = Outcome::stopped;
  }
  end.details = attempt_to_json(attempt());
  member_->report_ended(
      std::move(end), std::chrono::duration_cast<rendezvous::Nanoseconds>(when.time_since_epoch()));
}

void EventLoop::carry_out(const LeaveJob& action) {
  output_.end_attempt();
  containment_.kill_by(Guard::kNever);
  cut_off_ = false;
  member_->leave(action.signo, fmt::format("was stopped by {}", rendezvous::signal_name(action.signo)));
}

// The leader prints the failure report; the other agents print where to find it.
void EventLoop::finish_in_cluster() {
  output_.end_attempt();
  const JobResult* const whole = member_->history();
  if (whole && whole->status == status_) {
    const int node_rank = history_.node_rank;
    history_ = *whole;
    history_.node_rank = node_rank;
  } else {
    history_.lasted = between(job_began_, Clock::now());
    history_.stop_signal = supervisor_.stop_signal();
  }
  history_.status = status_;
  if (status_ == 0) {
    logs_.job_succeeded();
  } else {
    const bool elsewhere = !whole && !history_.remark.empty();
    output_.print_line(elsewhere ? fmt::format("mgpu-run: {}", history_.remark)
                                 : failure_report(history_));
    if (!history_.attempts.empty()) write_error_file();
  }
  write_report();
  forget_job(options_.rdzv_id);
  containment_.release();
  member_->finish([this] { output_.when_flushed([this] { io_.stop(); }); });
}

}  // namespace mgpu::launcher
