// How the ranks of this node reach the store: directly, or through this node's relay.

#include <fcntl.h>
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "launcher/nodes/cluster_member.hpp"
#include "rendezvous/base/exit_status.hpp"

namespace mgpu::launcher {
namespace {

// If the leader is lost too, that is what the user is told.
constexpr auto kNoteDelay = std::chrono::milliseconds(500);

}  // namespace

void ClusterMember::start_round(const rendezvous::Begin& begin, const std::string& leader_address,
                                int port) {
  stop_relay();
  const bool rank0_store = begin.master_port != 0;
  if (rank0_store) return callbacks_.round_started(begin, leader_address, port);
  if (begin.direct_store) return callbacks_.round_started(begin, shared_leader_address(), port);
  if (leader_) return callbacks_.round_started(begin, "127.0.0.1", leader_->port());
  try {
    port = start_relay(begin);
  } catch (const std::exception& problem) {
    leader_connection_.close();
    return end_job(exit_status::kFailure, problem.what());
  }
  callbacks_.round_started(begin, "127.0.0.1", port);
}

std::string ClusterMember::shared_leader_address() const {
  // On the leader's node the agent may have connected over loopback, which other nodes cannot use.
  const std::string reached = reached_address();
  return reached.empty() ? leader_connection_.leader_address() : reached;
}

int ClusterMember::start_relay(const rendezvous::Begin& begin) {
  StoreRelay::Settings settings{.job = node_.job,
                                .credentials = credentials_,
                                .leader_name = leader_connection_.leader_text(),
                                .round = begin.round};
  const auto& leader = leader_connection_.leader();
  settings.leader_size = static_cast<socklen_t>(leader.size());
  std::memcpy(&settings.leader, leader.data(), leader.size());
  relay_ = std::make_unique<StoreRelay>(std::move(settings),
                                        [this](const std::string& why) { relay_failed(why); });
  relay_watch_ = std::make_unique<boost::asio::posix::stream_descriptor>(
      io_, ::fcntl(relay_->fd(), F_DUPFD_CLOEXEC, 3));
  serve_relay();
  return relay_->port();
}

void ClusterMember::serve_relay() {
  relay_watch_->async_wait(boost::asio::posix::stream_descriptor::wait_read,
                           [this, served = relay_.get()](const boost::system::error_code& failed) {
                             if (failed || served != relay_.get()) return;
                             relay_->serve_ready();
                             serve_relay();
                           });
}

void ClusterMember::relay_failed(const std::string& why) {
  relay_problem_ = why;
  relay_note_.expires_after(kNoteDelay);
  relay_note_.async_wait([this](const boost::system::error_code& cancelled) {
    if (!cancelled && leader_connection_.joined()) tell_relay_problem();
  });
}

void ClusterMember::tell_relay_problem() {
  const auto why = std::exchange(relay_problem_, {});
  if (why.empty()) return;
  callbacks_.print_note(fmt::format(
      "lost the connection to the leader's store, and with it the ranks of this node theirs: {}",
      why));
}

void ClusterMember::stop_relay() {
  relay_note_.cancel();
  relay_problem_.clear();
  relay_watch_.reset();
  relay_.reset();
}

}  // namespace mgpu::launcher
