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
            journal_.set_remark(remark);
            feed(JobFinished{status});
          },
      .lease_extended = [this](rendezvous::Nanoseconds until) { renew_lease(until); },
      .connected = [this](int socket) { containment_.hold(socket); },
      .print_note = [this](std::string_view line) { journal_.note(line); }};
  member_ =
      std::make_unique<ClusterMember>(io_, *plan_.rendezvous_plan,
                                      ClusterMember::Node{.job = options_.rdzv_id,
                                                          .target = options_.target,
                                                          .host = journal_.host(),
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
    journal_.note("stdin was closed: the process that started this agent has exited");
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
  journal_.round_started();
  attempt_ = {.number = begin.restarts,
              .oom_count = begin.oom_count,
              .master_addr = address,
              .master_port = port,
              .leader_addr = member_->shared_leader_address(),
              .log_dir = {}};
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
  if (!supervisor_.done())
    containment_.kill_by(supervisor_.active() ? lease_ + options_.grace : Guard::kNever);
}

void EventLoop::cut_off(const std::string& why) {
  if (!supervisor_.active()) return member_->ranks_stopped();
  journal_.note(
      fmt::format("lost the leader ({}); stopping the ranks of this node and waiting for it", why));
  cut_off_ = true;
  feed(RoundStopRequested{SIGTERM});
}

// Called when this node's part of the round is over and none of its processes is left.
void EventLoop::report_to_leader() {
  containment_.kill_by(Guard::kNever);
  const bool was_cut_off = std::exchange(cut_off_, false);
  if (const int signo = supervisor_.stop_signal(); signo != 0)
    return member_->leave(signo, fmt::format("was stopped by {}", signal_name(signo)));
  if (was_cut_off) return member_->ranks_stopped();
  rendezvous::NodeEnded end{.round = supervisor_.attempt(), .outcome = "done"};
  const auto began = journal_.attempt_began();
  auto when = Clock::now();
  if (supervisor_.first_failed() >= 0) {
    assess_first_failure();
    when = began + journal_.attempt().first_failure->after_start;
    end.outcome = "failed";
    end.cause = name_of(journal_.attempt().cause.kind);
    end.status = journal_.attempt().first_failure->report.shell_status();
    end.lasted = between(began, when).count() * 1000;
  } else if (supervisor_.was_stopped()) {
    end.outcome = "stopped";
  }
  end.details = attempt_to_json(journal_.attempt());
  member_->report_ended(
      std::move(end), std::chrono::duration_cast<rendezvous::Nanoseconds>(when.time_since_epoch()));
}

}  // namespace mgpu::launcher
