#include "launcher/nodes/cluster_member.hpp"

#include <fmt/format.h>

#include <boost/asio/post.hpp>

#include <algorithm>
#include <functional>
#include <utility>

#include "launcher/nodes/free_port.hpp"
#include "launcher/nodes/interfaces.hpp"
#include "launcher/nodes/job_registry.hpp"
#include "rendezvous/base/exit_status.hpp"
#include "rendezvous/store/listener.hpp"

namespace mgpu::launcher {

namespace asio = boost::asio;

ClusterMember::ClusterMember(asio::io_context& io, RendezvousPlan plan, Node node,
                             rendezvous::Credentials credentials, Callbacks callbacks)
    : io_(io),
      plan_(std::move(plan)),
      node_(std::move(node)),
      credentials_(std::move(credentials)),
      callbacks_(std::move(callbacks)),
      leader_connection_(
          io,
          {.job = node_.job,
           .host = plan_.host,
           .port = plan_.port,
           .credentials = credentials_,
           .keep_alive = plan_.rules.keep_alive,
           .join_timeout = plan_.rules.join_timeout},
          {.addresses_resolved = [this](auto& endpoints) { add_leader_addresses(endpoints); },
           .make_join = [this] { return make_join(); },
           .round_started =
               [this](const auto& begin, const auto& address, int port) {
                 counts_ = {begin.round + 1, begin.restarts, begin.oom_count};
                 to_rejoin_ = begin.to_rejoin;
                 excluded_ = false;
                 lease_and_grace_ = leader_connection_.keep_alive() + grace_of(begin);
                 start_round(begin, address, port);
               },
           .stop_requested = callbacks_.stop_requested,
           .job_idle = callbacks_.job_idle,
           .noticed =
               [this](const rendezvous::Notice& notice) {
                 excluded_ = notice.excluded;
                 callbacks_.print_note(notice.text);
               },
           .paused = callbacks_.paused,
           .leader_lost =
               [this](const std::string& why) {
                 relay_note_.cancel();
                 callbacks_.leader_lost(why);
               },
           .job_ended = [this](int status, const auto& message) { end_job(status, message); },
           .lease_extended = callbacks_.lease_extended,
           .connected = callbacks_.connected,
           .print_note = callbacks_.print_note}),
      relay_note_(io),
      candidacy_pause_(io),
      resolver_(io) {
  if (credentials_.sealer)
    credentials_.sealer->deliver_through(
        [&io](std::function<void()> result) { asio::post(io, std::move(result)); });
}

ClusterMember::~ClusterMember() {
  if (credentials_.sealer) credentials_.sealer->deliver_through(nullptr);
}

void ClusterMember::start() {
  if (plan_.etcd) join_election();
  leader_connection_.start();
}

// The node that owns the address runs the leader. It is recognized by the machine's addresses, and
// by the port, which only one program can bind.
void ClusterMember::add_leader_addresses(std::vector<LeaderConnection::Endpoint>& endpoints) {
  const auto ours = interfaces();
  const auto is_ours = [&](const LeaderConnection::Endpoint& endpoint) {
    // Debian resolves the host's own name to 127.0.1.1, which no interface lists.
    if (endpoint.address().is_loopback()) return true;
    return std::any_of(ours.begin(), ours.end(), [&](const auto& interface) {
      return interface.address == numeric(endpoint.address());
    });
  };
  if (!leader_ && !election_ &&
      plan_.runs_leader.value_or(std::any_of(endpoints.begin(), endpoints.end(), is_ours)) &&
      !start_local_leader())
    return endpoints.clear();
  if (!leader_) return;
  std::erase_if(endpoints, [&](const auto& endpoint) { return !is_ours(endpoint); });
  if (endpoints.empty())
    endpoints.emplace_back(asio::ip::address_v4::loopback(),
                           static_cast<std::uint16_t>(leader_->port()));
}

// A leader that was killed on this node may have left a round running.
Coordinator::Settings ClusterMember::local_rules() const {
  Coordinator::Settings rules = plan_.rules;
  if (const auto folder = registry_folder(); !folder.problem.empty())
    callbacks_.print_note(
        folder.path.empty()
            ? fmt::format("{}; set XDG_RUNTIME_DIR to a folder of yours: without one, status does "
                          "not find this job, and a leader that replaces a killed one does not "
                          "wait for the ranks of its nodes to end",
                          folder.problem)
            : fmt::format("{}; notes of this job are in {}", folder.problem, folder.path));
  const auto trace = find_leader(node_.job, plan_.port);
  if (!trace) return rules;
  const auto longest = std::max(rules.keep_alive + rules.grace, trace->lease_and_grace);
  if (trace->age >= rules.keep_alive + longest) return rules;
  rules.nodes_before = trace->nodes;
  rules.lease_and_grace_before = trace->lease_and_grace;
  return rules;
}

// True if there is a leader to connect to, here or on another node.
bool ClusterMember::start_local_leader() {
  const auto fail = [this](const std::exception& problem) {
    leader_connection_.close();
    end_job(exit_status::kFailure, problem.what());
    return false;
  };
  try {
    start_leader(local_rules(), counts_);
    return true;
  } catch (const rendezvous::store::PortInUse& problem) {
    // Unless only this node may lead, another agent on this machine has bound the port first.
    return plan_.runs_leader.value_or(false) ? fail(problem) : true;
  } catch (const std::exception& problem) {
    return fail(problem);
  }
}

// Throws if it cannot listen.
void ClusterMember::start_leader(const Coordinator::Settings& rules, const JobCounts& counts) {
  leader_ = std::make_unique<Leader>(
      io_,
      Leader::Settings{.job = node_.job,
                       .target = node_.target,
                       .host = node_.host,
                       .credentials = credentials_,
                       .rules = rules,
                       .counts = counts,
                       .port = plan_.port},
      Leader::Callbacks{
          .print_line = callbacks_.print_note,
          .job_ended = [this](int status) { end_job(status, ""); },
          .state_changed =
              [this](const JobCounts& job_counts, int nodes, LeaderTime lease_and_grace) {
                if (election_) feed(StateChanged{job_counts, nodes, lease_and_grace});
              }});
}

rendezvous::Join ClusterMember::make_join() {
  return {.host = node_.host,
          .nproc = node_.nproc,
          .node_rank = plan_.node_rank,
          .position = plan_.position,
          .leads = leader_ != nullptr,
          .rank0_port = node_.rank0_store ? free_port() : 0,
          .grace = LeaderTime(plan_.rules.grace).count(),
          .nodes = to_rejoin_,
          .lease_and_grace = lease_and_grace_.count(),
          .rounds = counts_.rounds,
          .restarts = counts_.restarts,
          .oom_count = counts_.oom_count,
          .excluded = excluded_};
}

LeaderTime ClusterMember::grace_of(const rendezvous::Begin& begin) const {
  return std::max(plan_.rules.grace, std::min(LeaderTime(begin.grace), kLongestGrace));
}

void ClusterMember::report_stopping(int round, int signo) {
  leader_connection_.send(
      rendezvous::Failing{.round = round,
                          .when = leader_connection_.by_leader(rendezvous::boot_now()).count(),
                          .signo = signo});
}

void ClusterMember::report_ended(rendezvous::NodeEnded end, rendezvous::Nanoseconds when) {
  if (end.outcome == rendezvous::Outcome::failed) tell_relay_problem();
  stop_relay();
  end.when = leader_connection_.by_leader(when).count();
  leader_connection_.send(end);
}

bool ClusterMember::suspend(std::function<void()> ready) {
  return !(leader_ && election_) && leader_connection_.suspend(std::move(ready));
}

void ClusterMember::ranks_stopped() {
  stop_relay();
  leader_connection_.ranks_stopped();
}

void ClusterMember::leave(int signo, const std::string& why) {
  stop_relay();
  const bool joined = leader_connection_.joined();
  leader_connection_.leave({.signo = signo, .why = why}, [this, signo, joined] {
    if (leader_ && election_)
      return feed(
          LeaveRequested{.status = exit_status::of_signal(signo), .alone = !leader_->has_others()});
    // A leader in this process that receives the message ends the job itself.
    if (!leader_ || !joined) end_job(exit_status::of_signal(signo), "");
  });
}

void ClusterMember::end_job(int status, const std::string& message) {
  if (ended_) return;
  ended_ = true;
  relay_note_.cancel();
  if (election_) feed(JobIsOver{});
  // Posted, because the callback destroys the leader and the agent that may be calling.
  asio::post(io_, [this, status, message] { callbacks_.job_ended(status, message); });
}

void ClusterMember::finish(std::function<void()> done) {
  stop_relay();
  leader_connection_.close();
  end_election(
      [this, done = std::move(done)] { leader_ ? leader_->when_agents_informed(done) : done(); });
}

std::string ClusterMember::interface() const {
  const std::string reached = reached_address();
  const std::string& ours = reached.empty() ? leader_connection_.our_address() : reached;
  for (const auto& interface : interfaces())
    if (interface.address == ours) return interface.name;
  return {};
}

}  // namespace mgpu::launcher
