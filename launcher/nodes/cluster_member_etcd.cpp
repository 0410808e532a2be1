// The part of ClusterMember that elects the leader over etcd.

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include "launcher/nodes/cluster_member.hpp"
#include "launcher/nodes/free_port.hpp"
#include "launcher/nodes/master_address.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {
namespace {

using rendezvous::etcd::Election;

constexpr auto kCandidacyPause = std::chrono::seconds(1);

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
  candidacy_.emplace(Candidacy::Settings{
      .job = node_.job, .address = plan_.local_addr, .max_nodes = plan_.rules.max_nodes});
  election_->on_change([this](const Election::Status& status) {
    feed(ElectionChanged{.status = status,
                         .standing = election_->is_candidate(),
                         .connected = leader_connection_.joined(),
                         .counts = counts_});
  });
  election_->observe();
}

// Carrying out an action may cause further events; they are queued.
void ClusterMember::feed(CandidacyEvent event) {
  candidacy_events_.push_back(std::move(event));
  if (std::exchange(feeding_, true)) return;
  while (!candidacy_events_.empty()) {
    const CandidacyEvent next = std::move(candidacy_events_.front());
    candidacy_events_.pop_front();
    for (const auto& action : candidacy_->handle(next))
      std::visit([this](const auto& a) { carry_out(a); }, action);
  }
  feeding_ = false;
}

void ClusterMember::carry_out(const PrintLine& action) {
  callbacks_.print_note(action.line);
}

void ClusterMember::carry_out(const FindAddress&) {
  feed(AddressFound{address_towards(plan_.etcd->endpoints)});
}

// With the address and port at which a leader here would listen.
void ClusterMember::carry_out(const Stand& action) {
  if (any_port_) plan_.port = free_port();
  election_->campaign(as_endpoint(action.address, plan_.port));
}

void ClusterMember::carry_out(const StepAside&) {
  election_->resign();
  candidacy_pause_.expires_after(kCandidacyPause);
  candidacy_pause_.async_wait([this](const auto& cancelled) {
    if (!cancelled) feed(PauseOver{});
  });
}

void ClusterMember::carry_out(const StartLeader& action) {
  Coordinator::Settings rules = plan_.rules;
  rules.elected = true;
  rules.nodes_before = action.nodes_before;
  rules.left_before = action.left_before;
  rules.lease_and_grace_before = action.lease_and_grace_before;
  try {
    start_leader(rules, action.counts);
  } catch (const std::exception& problem) {
    return feed(LeaderNotStarted{problem.what()});
  }
  feed(LeaderStarted{});
}

void ClusterMember::carry_out(const StopLeader&) {
  leader_.reset();
}

void ClusterMember::carry_out(const FollowLeader& action) {
  const bool none = action.address.empty();
  const MasterAddress at = none ? MasterAddress{.host = ""} : split_endpoint(action.address);
  leader_connection_.redirect(at.host, at.port, action.problem);
  feed(LeaderFollowed{.connected = leader_connection_.joined()});
}

void ClusterMember::carry_out(const SaveState& action) {
  election_->save(job_state_json(action.state), [](bool) {});
}

void ClusterMember::carry_out(const SaveBeforeLeaving& action) {
  election_->save(job_state_json(action.state), [this](bool) { feed(StateSaved{}); });
}

void ClusterMember::carry_out(const SaveEnd& action) {
  election_->save_end(job_state_json(action.state), state_lifetime(plan_.rules),
                      [this](bool) { feed(StateSaved{}); });
}

void ClusterMember::carry_out(const Resign&) {
  election_->resign([this] { feed(Resigned{}); });
}

void ClusterMember::carry_out(const EndJob& action) {
  end_job(action.status, action.message);
}

void ClusterMember::carry_out(const CloseElection&) {
  election_.reset();
  if (on_election_closed_) std::exchange(on_election_closed_, nullptr)();
}

void ClusterMember::end_election(std::function<void()> done) {
  candidacy_pause_.cancel();
  if (!election_) return done();
  on_election_closed_ = std::move(done);
  feed(ProcessEnds{.leading = leader_ && election_->leading(),
                   .status = leader_ ? leader_->history().status : 0});
}

}  // namespace mgpu::launcher
