// The part of Team that lets etcd say who leads.

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>

#include "launcher/free_port.hpp"
#include "launcher/meeting_address.hpp"
#include "launcher/team.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {
namespace {

using nlohmann::json;
using rendezvous::etcd::Election;

constexpr auto kEndStays = std::chrono::seconds(120);

// The address that packets to a host leave from; nothing is sent. Empty: it cannot be told.
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

std::string as_endpoint(const std::string& address, int port) {
  return address.find(':') == std::string::npos ? fmt::format("{}:{}", address, port)
                                                : fmt::format("[{}]:{}", address, port);
}

}  // namespace

void Team::join_election() {
  const auto ttl = std::chrono::ceil<std::chrono::seconds>(plan_.rules.keep_alive);
  election_ = std::make_unique<Election>(
      io_, Election::Settings{.access = *plan_.etcd,
                              .job = node_.job,
                              .lease = std::max(ttl, std::chrono::seconds(2)),
                              .keep_state = std::chrono::seconds(3600)});
  election_->on_change([this](const Election::Seen& seen) { elected(seen); });
  std::string address = plan_.local_addr;
  for (const auto& endpoint : plan_.etcd->endpoints)
    if (address.empty()) address = address_towards(endpoint);
  if (plan_.port == 0) plan_.port = free_port();
  our_candidacy_ = as_endpoint(address, plan_.port);
  election_->campaign(our_candidacy_);
}

void Team::elected(const Election::Seen& seen) {
  if (over_) return;
  if (seen.lasting) return job_over(2, fmt::format("etcd: {}", seen.problem));
  if (!seen.us && leader_) {
    callbacks_.say("another node leads now, or etcd cannot be asked: what we led ends");
    leader_.reset();
    election_->campaign(our_candidacy_);
  }
  if (seen.us && !leader_ && !take_over(seen.state.value_or(""))) return;
  const MeetingAddress at = split_endpoint(seen.leader.empty() ? ":0" : seen.leader);
  agent_.redirect(
      seen.leader.empty() ? "" : at.host, at.port,
      seen.problem.empty() ? "no node leads yet" : fmt::format("etcd: {}", seen.problem));
}

// Goes on from what the last leader has saved, unless that is the end of an older job of this name.
bool Team::take_over(const std::string& state) {
  const json saved = json::parse(state, nullptr, false);
  Coordinator::Settings rules = plan_.rules;
  rules.elected = true;
  if (saved.is_object() && !saved.contains("ended")) {
    counts_.rounds = std::max(counts_.rounds, saved.value("rounds", 0));
    counts_.restarts = std::max(counts_.restarts, saved.value("restarts", 0));
    counts_.oom_count = std::max(counts_.oom_count, saved.value("oom_count", 0));
    rules.nodes_before = saved.value("nodes", 0);
  } else if (saved.is_object() && counts_.rounds > 0) {
    job_over(saved.value("ended", 1), "the job has ended");
    return false;
  }
  if (lead(rules)) return leader_ != nullptr;
  election_->resign();
  return false;
}

void Team::save(const JobCounts& counts, int nodes) {
  if (!election_) return;
  const json state = {{"rounds", counts.rounds},
                      {"restarts", counts.restarts},
                      {"oom_count", counts.oom_count},
                      {"nodes", nodes}};
  election_->save(state.dump(), [](bool) {});  // who could not save learns that it has lost
}

void Team::end_election(std::function<void()> done) {
  if (!election_) return done();
  if (!leader_ || !election_->leading()) {
    election_.reset();
    return done();
  }
  const json state = {{"ended", leader_->history().status}};
  election_->save_end(state.dump(), kEndStays,
                      [this, done = std::move(done)](bool) { election_->resign(done); });
}

}  // namespace mgpu::launcher
