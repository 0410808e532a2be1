#include "launcher/nodes/leader_connection.hpp"

#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <utility>

#include "rendezvous/base/exit_status.hpp"

namespace mgpu::launcher {

namespace asio = boost::asio;
using asio::ip::tcp;
using asio::ip::udp;
using boost::system::error_code;
using rendezvous::boot_now;

LeaderConnection::LeaderConnection(asio::io_context& io, Settings settings, Callbacks callbacks)
    : io_(io),
      settings_(std::move(settings)),
      callbacks_(std::move(callbacks)),
      resolver_(io),
      stream_(io),
      datagrams_(io),
      connect_timer_(io),
      heartbeat_timer_(io) {}

void LeaderConnection::start() {
  search_began_ = boot_now();
  give_up_at_ = search_began_ + settings_.join_timeout;
  find_leader();
}

void LeaderConnection::redirect(const std::string& host, int port, const std::string& problem) {
  if (host.empty()) last_problem_ = problem;
  if (settings_.host == host && settings_.port == port) return;
  settings_.host = host;
  settings_.port = port;
  if (state_ == State::joined)
    return leader_lost(host.empty() ? problem : "another node is the leader now");
  if (state_ != State::resolving && state_ != State::connecting && state_ != State::handshaking)
    return;
  disconnect();
  retry_pause_ = {};
  find_leader();
}

// --- Messages

void LeaderConnection::read() {
  const auto connection_id = connection_id_;
  stream_.async_read_some(
      asio::buffer(bytes_), [this, connection_id](const error_code& failed, size_t got) {
        if (connection_id != connection_id_ || state_ == State::cut_off) return;
        if (failed)
          return leader_lost(failed == asio::error::eof ? "it closed the connection"
                                                        : failed.message());
        on_bytes({bytes_.data(), got});
        if (connection_id == connection_id_) read();
      });
}

void LeaderConnection::on_bytes(std::string_view bytes) {
  if (on_flushed_) return;  // we are leaving: ignore input
  std::vector<rendezvous::AuthenticatedChannel::Received> received;
  const auto connection_id = connection_id_;
  try {
    channel_->receive(bytes, received);
  } catch (const rendezvous::Mismatch& mismatch) {
    // Once a leader has proven that it has the secret, another one that has not is a stranger.
    if (was_joined_) return leader_lost(mismatch.what());
    return flush_then_close(
        [this, why = std::string(mismatch.what())] { callbacks_.job_ended(2, why); });
  } catch (const std::exception& problem) {
    return leader_lost(problem.what());
  }
  for (auto& item : received) {
    if (connection_id != connection_id_ || state_ == State::closed) return;
    if (auto* heartbeat = std::get_if<rendezvous::Heartbeat>(&item)) {
      if (heartbeats_.receive(*heartbeat, boot_now()))
        callbacks_.lease_extended(heartbeats_.confirmed_until() + settings_.keep_alive);
    } else if (auto* message = std::get_if<rendezvous::Message>(&item)) {
      on_message(std::move(*message));
    }
  }
  if (connection_id == connection_id_) write();
}

void LeaderConnection::on_message(rendezvous::Message&& message) {
  if (const auto* refusal = std::get_if<rendezvous::Refusal>(&message)) {
    close();
    const bool is_failure = refusal->status >= 1 && refusal->status <= exit_status::kLargest;
    callbacks_.job_ended(
        is_failure ? refusal->status : exit_status::kRendezvousFailed,
        fmt::format("the leader at {} rejected this node: {}", leader_text(), refusal->why));
  } else if (const auto* welcome = std::get_if<rendezvous::Welcome>(&message)) {
    on_welcome(*welcome);
  } else if (const auto* notice = std::get_if<rendezvous::Notice>(&message)) {
    callbacks_.noticed(*notice);
  } else if (const auto* begin = std::get_if<rendezvous::Begin>(&message)) {
    if (boot_now() >= heartbeats_.confirmed_until() + settings_.keep_alive)
      return leader_lost("its round began without a heartbeat");
    callbacks_.round_started(*begin,
                             begin->master_addr.empty() ? leader_address_ : begin->master_addr,
                             begin->master_port != 0 ? begin->master_port : leader_.port());
  } else if (const auto* stop = std::get_if<rendezvous::Stop>(&message)) {
    callbacks_.stop_requested(*stop);
  } else if (const auto* idle = std::get_if<rendezvous::JobIdle>(&message)) {
    callbacks_.job_idle(*idle);
  } else if (const auto* pause = std::get_if<rendezvous::Pause>(&message)) {
    on_pause(*pause);
  } else if (const auto* end = std::get_if<rendezvous::End>(&message)) {
    close();
    const bool is_status = end->status >= 0 && end->status <= exit_status::kLargest;
    callbacks_.job_ended(is_status ? end->status : exit_status::kRendezvousFailed, end->message);
  }
}

void LeaderConnection::on_welcome(const rendezvous::Welcome& welcome) {
  connect_timer_.cancel();
  state_ = State::joined;
  was_joined_ = true;
  retry_pause_ = {};
  noted_at_ = Nanoseconds(0);
  session_ = welcome.session;
  heartbeat_interval_ =
      std::clamp<Nanoseconds>(Nanoseconds(welcome.heartbeat_interval), std::chrono::milliseconds(1),
                              std::chrono::minutes(1));
  settings_.keep_alive =
      std::max<Nanoseconds>(Nanoseconds(welcome.keep_alive), heartbeat_interval_);
  const auto now = boot_now();
  heartbeats_ = {};
  leader_suspended_ = false;
  // The leader counts from when it received our proof, which may be long before its welcome
  // arrives.
  heartbeats_.begin(channel_->proven_at());
  silent_since_ = datagram_received_at_ = next_heartbeat_ = now;
  next_stream_heartbeat_ = now + settings_.keep_alive / 4;
  error_code failed;
  datagrams_ = udp::socket(io_);
  datagrams_.open(leader_.address().is_v6() ? udp::v6() : udp::v4(), failed);
  if (!failed) set_close_on_exec(datagrams_.native_handle());
  if (!failed) datagrams_.bind(udp::endpoint(stream_.local_endpoint(failed).address(), 0), failed);
  if (!failed) datagrams_.non_blocking(true, failed);
  callbacks_.connected(stream_.native_handle());
  callbacks_.lease_extended(heartbeats_.confirmed_until() + settings_.keep_alive);
  // The leader answers in order: it confirms this heartbeat before a round can start.
  channel_->send(heartbeats_.next(session_, now));
  channel_->send(callbacks_.make_join());
  receive_datagram();
  arm_heartbeat_timer();
}

void LeaderConnection::send(const rendezvous::Message& message) {
  if (state_ != State::joined) return;
  channel_->send(message);
  write();
}

void LeaderConnection::write() {
  if (write_active_ || !channel_) return;
  if (channel_->output().empty()) {
    if (on_flushed_) std::exchange(on_flushed_, nullptr)();
    return;
  }
  write_active_ = true;
  write_buffer_ = std::exchange(channel_->output(), {});
  const auto connection_id = connection_id_;
  asio::async_write(stream_, asio::buffer(write_buffer_),
                    [this, connection_id](const error_code& failed, size_t) {
                      if (connection_id != connection_id_) return;
                      write_active_ = false;
                      if (failed) return leader_lost(failed.message());
                      write();
                    });
}

// Ranks must not run without a leader: the leader may start another set of ranks without this node.
void LeaderConnection::leader_lost(const std::string& why) {
  if (state_ == State::closed || state_ == State::cut_off) return;
  if (on_flushed_) return std::exchange(on_flushed_, nullptr)();
  if (state_ != State::joined) return connect_failed(why);
  last_problem_ = fmt::format("{}: {}", leader_text(), why);
  state_ = State::cut_off;
  if (on_suspension_) asio::post(io_, std::exchange(on_suspension_, nullptr));
  heartbeat_timer_.cancel();
  search_began_ = boot_now();
  give_up_at_ = search_began_ + settings_.join_timeout;
  callbacks_.leader_lost(why);
}

void LeaderConnection::ranks_stopped() {
  if (state_ != State::cut_off) return;
  disconnect();
  state_ = State::resolving;
  find_leader();
}

// Pending completions see a new connection id and do nothing.
void LeaderConnection::disconnect() {
  ++connection_id_;
  write_active_ = false;
  connect_timer_.cancel();
  heartbeat_timer_.cancel();
  error_code ignored;
  stream_.shutdown(tcp::socket::shutdown_both,
                   ignored);  // close() alone is not enough: the guard has a copy
  stream_.close(ignored);
  datagrams_.close(ignored);
  channel_.reset();
}

void LeaderConnection::close() {
  if (state_ == State::closed) return;
  state_ = State::closed;
  ++connection_id_;
  connect_timer_.cancel();
  heartbeat_timer_.cancel();
  error_code ignored;
  stream_.shutdown(tcp::socket::shutdown_send, ignored);
  stream_.close(ignored);
  datagrams_.close(ignored);
}

void LeaderConnection::leave(const rendezvous::Leave& leave, std::function<void()> done) {
  if (state_ != State::joined) {
    close();
    return done();
  }
  channel_->send(leave);
  flush_then_close(std::move(done));
}

// Sends the remaining output, ignoring further input.
void LeaderConnection::flush_then_close(std::function<void()> done) {
  on_flushed_ = [this, done = std::move(done)] {
    close();
    done();
  };
  write();
}

LeaderConnection::Nanoseconds LeaderConnection::by_leader(Nanoseconds time) const {
  return time + heartbeats_.offset().value_or(Nanoseconds(0));
}

// --- Suspension

bool LeaderConnection::suspend(std::function<void()> ready) {
  if (state_ != State::joined) return false;
  send(rendezvous::Suspension{.suspended = true});
  if (leader_suspended_)  // it answers when it runs again, and loses no node before
    asio::post(io_, std::move(ready));
  else
    on_suspension_ = std::move(ready);
  return true;
}

void LeaderConnection::resumed() {
  send(rendezvous::Suspension{.suspended = false});
  if (state_ == State::joined) restart_heartbeats();
}

void LeaderConnection::on_pause(const rendezvous::Pause& pause) {
  const bool leader_was = std::exchange(leader_suspended_, pause.leader);
  if (pause.leader) heartbeat_timer_.cancel();
  callbacks_.paused(pause);
  if (leader_was && !pause.leader) restart_heartbeats();
  if (on_suspension_) asio::post(io_, std::exchange(on_suspension_, nullptr));
}

// Over the stream, so that the leader's answer does not wait for its next datagram.
void LeaderConnection::restart_heartbeats() {
  silent_since_ = next_heartbeat_ = boot_now();
  if (leader_suspended_) return;
  channel_->send(heartbeats_.next(session_, silent_since_));
  write();
  arm_heartbeat_timer();
}

// --- Heartbeats

void LeaderConnection::arm_heartbeat_timer() {
  if (leader_suspended_) return;
  const auto next = std::min(next_heartbeat_, lost_at());
  heartbeat_timer_.expires_after(std::max(next - boot_now(), Nanoseconds(0)));
  const auto connection_id = connection_id_;
  heartbeat_timer_.async_wait([this, connection_id](const error_code& cancelled) {
    if (cancelled || connection_id != connection_id_ || state_ != State::joined) return;
    if (leader_suspended_) return;
    on_heartbeat_timer();
    if (connection_id == connection_id_ && state_ == State::joined) arm_heartbeat_timer();
  });
}

// A welcome that took longer than the keep-alive does not mean that the leader is lost: no round
// has begun, so no rank needs a lease yet. At the end of a pause all ranks are suspended.
LeaderConnection::Nanoseconds LeaderConnection::lost_at() const {
  return std::max(heartbeats_.confirmed_until(), silent_since_) + settings_.keep_alive;
}

void LeaderConnection::check_leader() {
  if (state_ != State::joined || leader_suspended_ || boot_now() < lost_at()) return;
  leader_lost(fmt::format("no heartbeat from it for {:g} s",
                          std::chrono::duration<double>(settings_.keep_alive).count()));
}

void LeaderConnection::on_heartbeat_timer() {
  check_leader();
  const auto now = boot_now();
  if (state_ != State::joined || now < next_heartbeat_) return;
  next_heartbeat_ = now + heartbeat_interval_;
  send_heartbeat(now);
}

void LeaderConnection::send_heartbeat(Nanoseconds now) {
  const std::string heartbeat = encode(heartbeats_.next(session_, now), channel_->key_out());
  error_code ignored;
  datagrams_.send_to(asio::buffer(heartbeat), udp::endpoint(leader_.address(), leader_.port()), 0,
                     ignored);
  // If no datagrams arrive, the stream carries the heartbeats as well.
  if (now < next_stream_heartbeat_ || now - datagram_received_at_ < settings_.keep_alive / 4)
    return;
  next_stream_heartbeat_ = now + settings_.keep_alive / 8;
  channel_->send(heartbeats_.next(session_, now));
  write();
}

void LeaderConnection::receive_datagram() {
  const auto connection_id = connection_id_;
  datagrams_.async_receive_from(
      asio::buffer(datagram_), from_, [this, connection_id](const error_code& failed, size_t got) {
        if (connection_id != connection_id_ || failed == asio::error::operation_aborted ||
            failed == asio::error::bad_descriptor)
          return;
        const std::string_view bytes(datagram_.data(), failed ? 0 : got);
        const auto heartbeat = rendezvous::decode_heartbeat(bytes, channel_->key_in());
        const auto now = boot_now();
        if (heartbeat && heartbeat->session == session_ && heartbeats_.receive(*heartbeat, now)) {
          datagram_received_at_ = now;
          callbacks_.lease_extended(heartbeats_.confirmed_until() + settings_.keep_alive);
        }
        receive_datagram();
      });
}

}  // namespace mgpu::launcher
