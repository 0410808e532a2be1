#include "launcher/event_loop/cluster_session.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <optional>
#include <utility>

#include "launcher/lifecycle/suspended_rank.hpp"
#include "launcher/nodes/progress_json.hpp"
#include "launcher/ranks/guard.hpp"
#include "rendezvous/base/signal_names.hpp"

namespace mgpu::launcher {

using rendezvous::Nanoseconds;

namespace {

// Between two reports of a node, for each node of the job: the leader reads at most 100 a second.
constexpr std::chrono::milliseconds kReportInterval{10};

}  // namespace

ClusterSession::ClusterSession(boost::asio::io_context& io, const Options& options,
                               const JobPlan& plan, const std::string& host,
                               const Supervisor& supervisor, Callbacks callbacks)
    : options_(options),
      credentials_(plan.credentials),
      nproc_(plan.placement.nproc),
      supervisor_(supervisor),
      callbacks_(std::move(callbacks)),
      member_(io, *plan.rendezvous_plan,
              {.job = options.rdzv_id,
               .target = options.target,
               .host = host,
               .nproc = nproc_,
               .rank0_store = options.rank0_store},
              credentials_, member_callbacks()),
      stdin_(io) {}

void ClusterSession::start() {
  member_.start();
  if (options_.rdzv_token_stdin) {
    stdin_.assign(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
    watch_stdin();
  }
}

ClusterMember::Callbacks ClusterSession::member_callbacks() {
  return {.round_started = [this](const auto& begin, const auto& address,
                                  int port) { start_round(begin, address, port); },
          .stop_requested =
              [this](const rendezvous::Stop& stop) {
                forget_pause();
                callbacks_.stop_requested({Signal::numbered(stop.signo), stop.failed});
              },
          .job_idle =
              [this](const rendezvous::JobIdle& idle) {
                if (idle.round == supervisor_.attempt())
                  callbacks_.job_idle(Nanoseconds(idle.time));
              },
          .paused = [this](const rendezvous::Pause& pause) { on_pause(pause); },
          .leader_lost = [this](const std::string& why) { lose_leader(why); },
          .job_ended = callbacks_.job_ended,
          .lease_extended = [this](Nanoseconds until) { renew_lease(until); },
          .connected = callbacks_.connected,
          .print_note = callbacks_.print_note};
}

// The process that started this agent over ssh holds the other end; when it closes, the agent
// stops.
void ClusterSession::watch_stdin() {
  stdin_.async_wait(stdin_.wait_read, [this](const boost::system::error_code& failed) {
    if (failed) return;
    char bytes[256];
    const auto got = ::read(stdin_.native_handle(), bytes, sizeof bytes);
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) return watch_stdin();
    callbacks_.print_note("stdin was closed: the process that started this agent has exited");
    callbacks_.parent_exited();
  });
}

void ClusterSession::start_round(const rendezvous::Begin& begin, const std::string& address,
                                 int port) {
  // With munge the secret belongs to the leader, so it is not stored.
  std::optional<std::string> secret;
  if (!credentials_.sealer) secret = credentials_.secret;
  notes_.run([job = options_.rdzv_id,
              address = JobAddress{member_.leader_address(), member_.leader_port(),
                                   std::move(secret)}] { note_job(job, address); });
  notes_.settle();
  grace_ = member_.grace_of(begin);
  nodes_ = begin.nodes;
  reported_.clear();
  next_report_ = {};
  forget_pause();
  callbacks_.round_started({.number = begin.round,
                            .placement = {.nproc = nproc_,
                                          .node_rank = begin.node_rank,
                                          .nodes = begin.nodes,
                                          .base_rank = begin.base_rank,
                                          .world_size = begin.world_size},
                            .attempt = {.number = begin.restarts,
                                        .oom_count = begin.oom_count,
                                        .master_addr = address,
                                        .master_port = port,
                                        .leader_addr = member_.shared_leader_address(),
                                        .log_dir = {}},
                            .interface = member_.interface(),
                            .grace = std::chrono::ceil<std::chrono::milliseconds>(grace_)});
  renew_lease(lease_);
}

// If this process is suspended while its ranks run, the guard kills them when the lease is over.
void ClusterSession::renew_lease(Nanoseconds until) {
  lease_ = until;
  // A suspended leader cannot extend leases, and starts no round. The ranks of the job do not run.
  if (leader_suspended_ && supervisor_.active()) return callbacks_.kill_by(Guard::kNever);
  if (unconfirmed_ && until <= rendezvous::boot_now()) return;
  unconfirmed_ = false;
  if (!supervisor_.done())
    callbacks_.kill_by(supervisor_.active() ? lease_ + grace_ : Guard::kNever);
  resume_if_confirmed();
}

void ClusterSession::suspend(const std::function<void()>& ready) {
  paused_ = supervisor_.active();
  asked_ = member_.suspend([this, ready] {
    if (!lost_leader_ && supervisor_.active()) {
      unconfirmed_ = true;
      callbacks_.kill_by(Guard::kNever);
    }
    ready();
  });
  if (!asked_) ready();
}

bool ClusterSession::resumed() {
  if (!std::exchange(asked_, false)) return paused_ = false;
  member_.resumed();
  return unconfirmed_;
}

// The ranks of this node wait for those of a suspended node.
void ClusterSession::on_pause(const rendezvous::Pause& pause) {
  leader_suspended_ = pause.leader;
  if (pause.ranks && supervisor_.active() && !supervisor_.stopping() && !paused_) {
    paused_ = true;
    callbacks_.print_note(
        fmt::format("{} is suspended; all ranks wait until it continues", pause.host));
    callbacks_.suspend_ranks();
  }
  resuming_ = paused_ && !pause.ranks;
  if (leader_suspended_)
    renew_lease(lease_);
  else
    resume_if_confirmed();
}

void ClusterSession::resume_if_confirmed() {
  if (!resuming_ || leader_suspended_ || lease_ <= rendezvous::boot_now()) return;
  forget_pause();
  callbacks_.resume_ranks();
}

void ClusterSession::forget_pause() {
  paused_ = resuming_ = unconfirmed_ = false;
}

void ClusterSession::lose_leader(const std::string& why) {
  // While it was suspended, the guard had no deadline.
  if (paused_ && supervisor_.active()) callbacks_.kill_by(lease_ + grace_);
  leader_suspended_ = false;
  forget_pause();
  if (!supervisor_.active()) return member_.ranks_stopped();
  callbacks_.print_note(
      fmt::format("lost the leader ({}); stopping the ranks of this node and waiting for it", why));
  lost_leader_ = true;
  callbacks_.stop_requested({SIGTERM, true});
}

void ClusterSession::ranks_exited() {
  if (supervisor_.active() && !asked_) member_.check_leader();
}

void ClusterSession::report_failure() {
  member_.report_stopping(supervisor_.attempt(), 0);
}

void ClusterSession::report_stop(Signal signal) {
  if (supervisor_.active()) member_.report_stopping(supervisor_.attempt(), signal.number());
}

void ClusterSession::report_progress(const std::vector<RankProgress>& progress,
                                     std::optional<Nanoseconds> idle) {
  const auto now = rendezvous::boot_now();
  if ((progress == reported_ && !idle) || now < next_report_) return;
  reported_ = progress;
  next_report_ = now + nodes_ * kReportInterval;
  member_.report_progress({.round = supervisor_.attempt(),
                           .ranks = progress_to_text(progress),
                           .idle = idle ? idle->count() : -1});
}

bool ClusterSession::ranks_ended() {
  forget_pause();
  callbacks_.kill_by(Guard::kNever);
  const bool lost_leader = std::exchange(lost_leader_, false);
  if (lost_leader) member_.ranks_stopped();
  return !lost_leader;
}

void ClusterSession::leave(Signal signal) {
  callbacks_.kill_by(Guard::kNever);
  lost_leader_ = false;
  member_.leave(signal.number(),
                fmt::format("was stopped by {}", rendezvous::signal_name(signal.number())));
}

void ClusterSession::report_result(const AttemptResult& attempt, Clock::time_point began) {
  const auto ago = attempt.first_failure ? Clock::now() - began - first_to_exit(attempt).after_start
                                         : Clock::duration(0);
  member_.report_ended(node_ended(supervisor_.attempt(), attempt, supervisor_.was_stopped()),
                       rendezvous::boot_now() - Nanoseconds(ago));
}

void ClusterSession::finish(std::function<void()> done) {
  notes_.run([job = options_.rdzv_id] { forget_job(job); });
  notes_.settle();
  member_.finish(std::move(done));
}

rendezvous::NodeEnded node_ended(int round, const AttemptResult& attempt, bool stopped) {
  using rendezvous::Outcome;
  rendezvous::NodeEnded end{.round = round,
                            .outcome = stopped ? Outcome::stopped : Outcome::done,
                            .details = attempt_to_json(attempt),
                            .last_step = attempt.last_step};
  if (const auto found = std::ranges::find_if(attempt.ranks, &RankResult::suspended);
      found != attempt.ranks.end())
    end.suspended = found->rank;
  if (attempt.first_failure) {
    end.outcome = Outcome::failed;
    end.cause = name_of(attempt.cause.kind);
    end.text = attempt.cause.text;
    end.certain = attempt.cause.certain;
    end.cascade = attempt.cause.cascade;
    end.waited = may_have_waited(attempt);
    end.rank = attempt.root_rank >= 0 ? attempt.root_rank : attempt.first_failure->rank;
    end.status = first_to_exit(attempt).report.shell_status();
    end.lasted = Nanoseconds(first_to_exit(attempt).after_start).count();
  }
  return end;
}

}  // namespace mgpu::launcher
