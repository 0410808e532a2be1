// How an agent connects to its leader: resolve the name, try its addresses in order, retry.

#include "launcher/nodes/leader_connection.hpp"
#include "rendezvous/base/exit_status.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace mgpu::launcher {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using rendezvous::boot_now;

namespace {

constexpr auto kConnectTimeout = std::chrono::seconds(4);
constexpr auto kHandshakeTimeout = std::chrono::seconds(10);
constexpr auto kShortestPause = std::chrono::milliseconds(20);
constexpr auto kLongestPause = std::chrono::milliseconds(1000);
constexpr auto kFirstNoteAfter = std::chrono::seconds(3);
constexpr auto kNoteInterval = std::chrono::minutes(1);

}  // namespace

std::string numeric(const asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
  const std::string text = address.to_string();
  return text.substr(0, text.find('%'));
}

std::string LeaderConnection::leader_text() const {
  const std::string host = numeric(leader_.address());
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, leader_.port())
                                             : fmt::format("[{}]:{}", host, leader_.port());
}

void LeaderConnection::set_close_on_exec(int fd) {
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void LeaderConnection::find_leader() {
  state_ = State::resolving;
  if (settings_.host.empty()) return retry_later();
  const auto connection_id = ++connection_id_;
  resolver_.resolve(settings_.host,
                    [this, connection_id](const auto& addresses, const auto& problem) {
                      if (state_ == State::resolving && connection_id == connection_id_)
                        on_resolved(addresses, problem);
                    });
}

void LeaderConnection::on_resolved(const rendezvous::Resolver::Addresses& addresses,
                                   const std::string& problem) {
  candidates_.clear();
  next_candidate_ = 0;
  for (const auto& address : addresses)
    candidates_.emplace_back(address, static_cast<std::uint16_t>(settings_.port));
  if (!problem.empty())
    last_problem_ = fmt::format("cannot resolve {}: {}", settings_.host, problem);
  callbacks_.addresses_resolved(candidates_);
  if (state_ == State::resolving) connect_next();
}

void LeaderConnection::connect_next() {
  if (next_candidate_ == candidates_.size()) {
    resolver_.forget(settings_.host);
    return retry_later();
  }
  leader_ = candidates_[next_candidate_++];
  state_ = State::connecting;
  const auto connection_id = ++connection_id_;
  error_code failed;
  stream_ = tcp::socket(io_);
  stream_.open(leader_.protocol(), failed);
  if (failed) return connect_failed(failed.message());
  set_close_on_exec(stream_.native_handle());
  connect_timer_.expires_after(kConnectTimeout);
  connect_timer_.async_wait([this, connection_id](const error_code& cancelled) {
    if (cancelled || connection_id != connection_id_) return;
    connect_failed(state_ == State::handshaking ? "the port is open but nothing answers"
                                                : "no answer");
  });
  stream_.async_connect(leader_, [this, connection_id](const error_code& refused) {
    if (connection_id == connection_id_ && state_ == State::connecting) on_connected(refused);
  });
}

void LeaderConnection::on_connected(const error_code& failed) {
  if (failed) return connect_failed(failed.message());
  error_code ignored;
  stream_.set_option(tcp::no_delay(true), ignored);
  stream_.set_option(asio::socket_base::keep_alive(true), ignored);
  our_address_ = numeric(stream_.local_endpoint(ignored).address());
  leader_address_ = numeric(leader_.address());
  state_ = State::handshaking;
  connect_timer_.expires_after(kHandshakeTimeout);
  const auto connection_id = connection_id_;
  connect_timer_.async_wait([this, connection_id](const error_code& cancelled) {
    if (!cancelled && connection_id == connection_id_)
      connect_failed("what listens there does not answer like mgpu-run");
  });
  channel_ = std::make_unique<rendezvous::AgentChannel>(settings_.credentials, settings_.job,
                                                        "agent", leader_text());
  channel_->on_ready([this, connection_id] {
    if (connection_id == connection_id_) on_bytes({});
  });
  write();
  read();
}

void LeaderConnection::connect_failed(const std::string& why) {
  if (on_flushed_) return std::exchange(on_flushed_, nullptr)();
  const auto conflict = channel_ ? channel_->version_conflict() : std::string();
  last_problem_ = conflict.empty() ? fmt::format("{}: {}", leader_text(), why) : conflict;
  disconnect();
  state_ = State::resolving;
  connect_next();
}

void LeaderConnection::retry_later() {
  const auto now = boot_now();
  if (now >= give_up_at_) return give_up();
  const auto since = now - std::max(noted_at_, search_began_);
  if (noted_at_.count() == 0 ? since > kFirstNoteAfter : since > kNoteInterval) {
    noted_at_ = now;
    callbacks_.print_note(fmt::format("cannot reach the leader{} yet ({}); retrying for {:.0f} s",
                                      target_text(), last_problem_,
                                      std::chrono::duration<double>(give_up_at_ - now).count()));
  }
  retry_pause_ =
      std::clamp<std::chrono::milliseconds>(retry_pause_ * 2, kShortestPause, kLongestPause);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(give_up_at_ - now);
  state_ = State::resolving;
  connect_timer_.expires_after(std::min(retry_pause_, left));
  connect_timer_.async_wait([this](const error_code& cancelled) {
    if (!cancelled && state_ == State::resolving) find_leader();
  });
}

std::string LeaderConnection::target_text() const {
  return settings_.host.empty() ? std::string()
                                : fmt::format(" at {}:{}", settings_.host, settings_.port);
}

void LeaderConnection::give_up() {
  close();
  callbacks_.job_ended(
      exit_status::kRendezvousFailed,
      fmt::format("could not reach the leader{} within {:g} s: {}", target_text(),
                  std::chrono::duration<double>(settings_.join_timeout).count(), last_problem_));
}

}  // namespace mgpu::launcher
