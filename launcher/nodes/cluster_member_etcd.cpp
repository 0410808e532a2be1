// The part of ClusterMember that elects the leader over etcd.

#include <fmt/format.h>
#include <sys/socket.h>

#include <boost/asio/ip/udp.hpp>

#include <utility>

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

// The local address of packets to one of the addresses; nothing is sent. Empty: unknown.
std::string address_towards(const rendezvous::Resolver::Addresses& addresses, int port) {
  for (const auto& remote : addresses) {
    const boost::asio::ip::udp::endpoint to(remote, static_cast<std::uint16_t>(port));
    const rendezvous::UniqueFd fd(::socket(to.protocol().family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage ours{};
    socklen_t size = sizeof ours;
    if (fd && ::connect(fd.get(), to.data(), static_cast<socklen_t>(to.size())) == 0 &&
        ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&ours), &size) == 0)
      return rendezvous::address_text(ours);
  }
  return {};
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
  if (!std::exchange(finding_address_, true)) find_address(0, {});
}

// Finds the first local address towards etcd's members that other nodes can use, or else the
// loopback address.
void ClusterMember::find_address(std::size_t next, const std::string& loopback) {
  if (next == plan_.etcd->endpoints.size()) return found_address(loopback);
  const auto& endpoint = plan_.etcd->endpoints[next];
  resolver_.resolve(endpoint.host, [this, next, loopback](const auto& addresses, const auto&) {
    const auto address = address_towards(addresses, plan_.etcd->endpoints[next].port);
    if (address.empty()) return find_address(next + 1, loopback);
    if (address.starts_with("127.") || address == "::1") return find_address(next + 1, address);
    found_address(address);
  });
}

void ClusterMember::found_address(const std::string& address) {
  finding_address_ = false;
  feed(AddressFound{address});
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
