// The part of ClusterMember that elects the leader over etcd.

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>

#include "launcher/nodes/cluster_member.hpp"
#include "launcher/nodes/free_port.hpp"
#include "launcher/nodes/master_address.hpp"
#include "rendezvous/base/exit_status.hpp"
#include "rendezvous/base/json_field.hpp"
#include "rendezvous/base/unique_fd.hpp"
#include "rendezvous/base/untrusted_json.hpp"

namespace mgpu::launcher {
namespace {

using nlohmann::json;
using rendezvous::etcd::Election;

constexpr auto kElectionPause = std::chrono::seconds(1);
constexpr std::int64_t kMaxSavedCount = 1'000'000'000;

// As long as an agent of the job may still be looking for a leader.
std::chrono::seconds state_lifetime(const Coordinator::Settings& rules) {
  return std::chrono::ceil<std::chrono::seconds>(rules.join_timeout + rules.keep_alive +
                                                 rules.grace);
}

// The local address of packets to a host; nothing is sent. Empty: unknown.
std::string address_towards(const rendezvous::etcd::Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const auto port = std::to_string(endpoint.port);
  if (::getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &found) != 0) return {};
  std::string address;
  for (const addrinfo* at = found; at && address.empty(); at = at->ai_next) {
    const rendezvous::UniqueFd fd(::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage ours{};
    socklen_t size = sizeof ours;
    if (fd && ::connect(fd.get(), at->ai_addr, at->ai_addrlen) == 0 &&
        ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&ours), &size) == 0)
      address = rendezvous::address_text(ours);
  }
  ::freeaddrinfo(found);
  return address;
}

// The first local address towards etcd's members that other nodes can use. The members' names were
// just resolved, so this does not block noticeably.
std::string address_towards(const std::vector<rendezvous::etcd::Endpoint>& endpoints) {
  std::string loopback;
  for (const auto& endpoint : endpoints) {
    const std::string address = address_towards(endpoint);
    if (address.empty()) continue;
    if (!address.starts_with("127.") && address != "::1") return address;
    loopback = address;
  }
  return loopback;
}

std::string as_endpoint(const std::string& address, int port) {
  return address.find(':') == std::string::npos ? fmt::format("{}:{}", address, port)
                                                : fmt::format("[{}]:{}", address, port);
}

// With munge each agent has a secret of its own, with which the others cannot check anything.
rendezvous::etcd::Signer signer_for(const rendezvous::Credentials& credentials,
                                    bool accept_unsigned) {
  return {credentials.sealer ? std::string() : credentials.secret, accept_unsigned};
}

}  // namespace

std::string ClusterMember::state_json(const Saved& saved) {
  json state = {{"job", saved.incarnation},
                {"rounds", saved.counts.rounds},
                {"restarts", saved.counts.restarts},
                {"oom_count", saved.counts.oom_count},
                {"nodes", saved.nodes},
                {"left", saved.left}};
  if (saved.ended) state["ended"] = *saved.ended;
  return state.dump();
}

std::optional<ClusterMember::Saved> ClusterMember::parse_state(const std::string& text) {
  const json state = rendezvous::parse_untrusted_json(text);
  if (!state.is_object()) return std::nullopt;
  const auto number = [&](const char* name) -> std::int64_t {
    std::int64_t value = 0;
    rendezvous::read_field(state, name, value);
    return std::max<std::int64_t>(value, 0);
  };
  const auto count = [&](const char* name) {
    return static_cast<int>(std::min<std::int64_t>(number(name), kMaxSavedCount));
  };
  Saved saved{.incarnation = number("job"),
              .counts = {count("rounds"), count("restarts"), count("oom_count")},
              .nodes = count("nodes"),
              .left = count("left"),
              .ended = {}};
  if (saved.incarnation == 0) return std::nullopt;
  if (state.contains("ended")) saved.ended = count("ended") & 0xff;
  return saved;
}

void ClusterMember::join_election() {
  const auto lease = std::chrono::ceil<std::chrono::seconds>(plan_.rules.keep_alive);
  try {
    election_ = std::make_unique<Election>(
        io_, Election::Settings{.access = *plan_.etcd,
                                .prefix = plan_.etcd_prefix,
                                .job = node_.job,
                                .signer = signer_for(credentials_, plan_.accept_unsigned_state),
                                .lease = std::max(lease, std::chrono::seconds(2)),
                                .keep_state = state_lifetime(plan_.rules)});
  } catch (const rendezvous::tls::FileError& problem) {
    throw UsageError(plan_.conf_origin + problem.what());
  } catch (const std::exception& problem) {
    throw UsageError(fmt::format("--rdzv-endpoint: {}", problem.what()));
  }
  if (const auto warning = rendezvous::etcd::plain_password_warning(*plan_.etcd); !warning.empty())
    callbacks_.print_note(warning);
  any_port_ = plan_.port == 0;
  our_address_ = plan_.local_addr;
  election_->on_change([this](const Election::Status& status) { on_election_status(status); });
  election_->observe();
}

// Becomes a candidate with the address and port at which a leader here would listen.
void ClusterMember::stand_for_election() {
  if (ended_ || leaving_ || backing_off_ || leader_) return;
  if (any_port_) plan_.port = free_port();
  election_->campaign(as_endpoint(our_address_, plan_.port));
}

void ClusterMember::on_election_status(const Election::Status& status) {
  if (ended_ || leaving_) return;
  // A running job survives changes of etcd's users: only a new one ends here.
  if (status.permanent && incarnation_ == 0)
    return end_job(exit_status::kUsage, fmt::format("etcd: {}", status.problem));
  if (our_address_.empty() && status.problem.empty()) {
    our_address_ = address_towards(plan_.etcd->endpoints);
    if (our_address_.empty())
      return end_job(exit_status::kUsage,
                     "cannot determine the address at which other nodes reach this one; set it "
                     "with --local-addr");
  }
  if (!status.is_leader && leader_) {
    callbacks_.print_note(
        "this node is no longer the leader: another node is, or etcd cannot be reached");
    leader_.reset();
  }
  if (!status.is_leader && !our_address_.empty() && !election_->is_candidate())
    stand_for_election();
  auto saved = parse_state(status.state.value_or(""));
  if (saved && (incarnation_ == 0 ? saved->ended.has_value() : saved->incarnation < incarnation_))
    saved.reset();  // of an older job with this id
  if (saved && incarnation_ == 0) incarnation_ = saved->incarnation;
  if (saved && saved->incarnation != incarnation_)
    return end_job(exit_status::kFailure,
                   fmt::format("another job with the id {} is running now", node_.job));
  note_rejected(status.state_rejected);
  if (status.is_leader && !leader_ && !take_over(saved, status)) return;
  redirect_to_leader(status);
  // A connected agent gets a more detailed message from the leader.
  if (saved && saved->ended && !leader_connection_.joined())
    end_job(*saved->ended, "the job has ended");
}

void ClusterMember::redirect_to_leader(const Election::Status& status) {
  // The leader that this agent is connected to has proven that it has the secret, and closes the
  // connection itself when it no longer leads.
  if (!status.leader_rejected.empty() && (leader_ || leader_connection_.joined()))
    note_rejected(status.leader_rejected);
  if (!status.leader_rejected.empty() && leader_connection_.joined()) return;
  std::string problem = "no node is the leader";
  if (!status.leader_rejected.empty()) problem = status.leader_rejected;
  if (!status.problem.empty()) problem = fmt::format("etcd: {}", status.problem);
  const MasterAddress at = split_endpoint(status.leader.empty() ? ":0" : status.leader);
  leader_connection_.redirect(status.leader.empty() ? "" : at.host, at.port, problem);
}

// Others may write to etcd again and again: each line is printed once.
void ClusterMember::note_rejected(const std::string& line) {
  if (!line.empty() && rejections_.insert(line).second) callbacks_.print_note(line);
}

// Continues from the state that the last leader saved, if any.
bool ClusterMember::take_over(const std::optional<Saved>& saved, const Election::Status& status) {
  Coordinator::Settings rules = plan_.rules;
  rules.elected = true;
  JobCounts counts = counts_;
  if (saved && saved->ended) {
    end_job(*saved->ended, "the job has ended");
    return false;
  }
  if (saved) {
    counts.rounds = std::max(counts.rounds, saved->counts.rounds);
    counts.restarts = std::max(counts.restarts, saved->counts.restarts);
    counts.oom_count = std::max(counts.oom_count, saved->counts.oom_count);
    rules.nodes_before = saved->nodes;
    rules.left_before = saved->left;
  }
  // It may have replaced our job's state, so any number of nodes may still run.
  if (!status.state_rejected.empty() && incarnation_ != 0) rules.nodes_before = rules.max_nodes;
  if (!start_leader(rules, counts)) {
    backing_off_ = true;  // meanwhile a node whose port is free can lead
    election_->resign();
    election_timer_.expires_after(kElectionPause);
    election_timer_.async_wait([this](const auto& cancelled) {
      if (cancelled) return;
      backing_off_ = false;
      stand_for_election();
    });
    return false;
  }
  if (incarnation_ == 0) incarnation_ = status.term;
  return true;
}

void ClusterMember::save(const JobCounts& counts, int nodes) {
  if (!election_) return;
  last_saved_ = {.incarnation = incarnation_, .counts = counts, .nodes = nodes};
  election_->save(state_json(last_saved_),
                  [](bool) {});  // if it fails, the election reports the lost leadership
}

// No rank of this node runs: the others continue under another leader without waiting for this
// node.
void ClusterMember::hand_over(int status) {
  const bool alone = !leader_->has_others();
  leaving_ = true;
  leader_.reset();
  const auto leave = [this, status](bool) {
    election_->resign([this, status] { end_job(status, ""); });
  };
  if (alone) return save_end(status, [leave] { leave(true); });
  if (last_saved_.incarnation == 0) return leave(true);
  last_saved_.left = 1;
  election_->save(state_json(last_saved_), leave);
}

void ClusterMember::end_election(std::function<void()> done) {
  election_timer_.cancel();
  if (!election_) return done();
  if (!leader_ || !election_->leading()) {
    election_.reset();
    return done();
  }
  save_end(leader_->history().status, [this, done = std::move(done)] { election_->resign(done); });
}

void ClusterMember::save_end(int status, std::function<void()> done) {
  election_->save_end(state_json({.incarnation = incarnation_, .ended = status}),
                      state_lifetime(plan_.rules), [done = std::move(done)](bool) { done(); });
}

}  // namespace mgpu::launcher
