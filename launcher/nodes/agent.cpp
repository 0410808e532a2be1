#include "launcher/nodes/agent.hpp"

#include <fmt/format.h>

#include <boost/asio/write.hpp>

#include <algorithm>
#include <utility>

namespace mgpu::launcher {

namespace asio = boost::asio;
using asio::ip::tcp;
using asio::ip::udp;
using boost::system::error_code;
using rendezvous::steady_now;

Agent::Agent(asio::io_context& io, Settings settings, Callbacks callbacks)
    : io_(io),
      settings_(std::move(settings)),
      callbacks_(std::move(callbacks)),
      resolver_(io),
      stream_(io),
      datagrams_(io),
      call_timer_(io),
      beat_timer_(io) {}

void Agent::start() {
  began_ = steady_now();
  give_up_at_ = began_ + settings_.join_timeout;
  seek();
}

void Agent::redirect(const std::string& host, int port, const std::string& problem) {
  if (host.empty()) last_problem_ = problem;
  if (settings_.host == host && settings_.port == port) return;
  settings_.host = host;
  settings_.port = port;
  if (state_ == State::joined)
    return lose(host.empty() ? problem : "another node is the leader now");
  if (state_ != State::seeking && state_ != State::calling && state_ != State::greeting) return;
  drop();
  pause_ = {};
  seek();
}

// --- The conversation

void Agent::read() {
  const auto call = call_;
  stream_.async_read_some(asio::buffer(bytes_), [this, call](const error_code& failed, size_t got) {
    if (call != call_ || state_ == State::cut_off) return;
    if (failed)
      return lose(failed == asio::error::eof ? "it closed the connection" : failed.message());
    on_bytes({bytes_.data(), got});
    if (call == call_) read();
  });
}

void Agent::on_bytes(std::string_view bytes) {
  if (written_) return;  // all is said
  std::vector<rendezvous::AuthenticatedChannel::Heard> heard;
  const auto call = call_;
  try {
    talk_->receive(bytes, heard);
  } catch (const rendezvous::Mismatch& mismatch) {
    return failure_report([this, why = std::string(mismatch.what())] { callbacks_.end(2, why); });
  } catch (const std::exception& problem) {
    return lose(problem.what());
  }
  for (auto& item : heard) {
    if (call != call_ || state_ == State::shut) return;
    if (auto* beat = std::get_if<rendezvous::Heartbeat>(&item)) {
      if (pulse_.hear(*beat, steady_now()))
        callbacks_.lease(pulse_.heard_until() + settings_.keep_alive);
    } else {
      on_message(std::move(std::get<rendezvous::Message>(item)));
    }
  }
  if (call == call_) write();
}

void Agent::on_message(rendezvous::Message&& message) {
  if (const auto* refusal = std::get_if<rendezvous::Refusal>(&message)) {
    shut();
    callbacks_.end(refusal->status, fmt::format("the leader at {} rejected this node: {}",
                                                leader_text(), refusal->why));
  } else if (const auto* welcome = std::get_if<rendezvous::Welcome>(&message)) {
    this->welcome(*welcome);
  } else if (const auto* notice = std::get_if<rendezvous::Notice>(&message)) {
    callbacks_.say(notice->text);
  } else if (const auto* begin = std::get_if<rendezvous::Begin>(&message)) {
    callbacks_.begin(*begin, begin->master_addr.empty() ? leader_address_ : begin->master_addr,
                     begin->master_port != 0 ? begin->master_port : leader_.port());
  } else if (const auto* stop = std::get_if<rendezvous::Stop>(&message)) {
    callbacks_.stop(*stop);
  } else if (const auto* end = std::get_if<rendezvous::End>(&message)) {
    shut();
    callbacks_.end(end->status, end->words);
  }
}

void Agent::welcome(const rendezvous::Welcome& welcome) {
  call_timer_.cancel();
  state_ = State::joined;
  pause_ = {};
  told_at_ = Nanoseconds(0);
  session_ = welcome.session;
  beat_interval_ = std::clamp<Nanoseconds>(Nanoseconds(welcome.heartbeat_interval),
                                           std::chrono::milliseconds(1), std::chrono::minutes(1));
  settings_.keep_alive = std::max<Nanoseconds>(Nanoseconds(welcome.keep_alive), beat_interval_);
  const auto now = steady_now();
  pulse_ = {};
  pulse_.begin(now);
  datagram_heard_ = next_beat_ = now;
  next_stream_beat_ = now + settings_.keep_alive / 4;
  error_code failed;
  datagrams_ = udp::socket(io_);
  datagrams_.open(leader_.address().is_v6() ? udp::v6() : udp::v4(), failed);
  if (!failed) keep_from_ranks(datagrams_.native_handle());
  if (!failed) datagrams_.bind(udp::endpoint(stream_.local_endpoint(failed).address(), 0), failed);
  if (!failed) datagrams_.non_blocking(true, failed);
  callbacks_.connected(stream_.native_handle());
  callbacks_.lease(now + settings_.keep_alive);
  talk_->send(callbacks_.introduce());
  hear();
  arm_beats();
}

void Agent::send(const rendezvous::Message& message) {
  if (state_ != State::joined) return;
  talk_->send(message);
  write();
}

void Agent::write() {
  if (writes_ || !talk_) return;
  if (talk_->output().empty()) {
    if (written_) std::exchange(written_, nullptr)();
    return;
  }
  writes_ = true;
  writing_ = std::exchange(talk_->output(), {});
  const auto call = call_;
  asio::async_write(stream_, asio::buffer(writing_),
                    [this, call](const error_code& failed, size_t) {
                      if (call != call_) return;
                      writes_ = false;
                      if (failed) return lose(failed.message());
                      write();
                    });
}

// Without a leader nobody may run: it, or those it goes on with, would be a second world.
void Agent::lose(const std::string& why) {
  if (state_ == State::shut || state_ == State::cut_off) return;
  if (written_) return std::exchange(written_, nullptr)();
  if (state_ != State::joined) return failed_to_call(why);
  last_problem_ = fmt::format("{}: {}", leader_text(), why);
  state_ = State::cut_off;
  beat_timer_.cancel();
  began_ = steady_now();
  give_up_at_ = began_ + settings_.join_timeout;
  callbacks_.cut_off(why);
}

void Agent::released() {
  if (state_ != State::cut_off) return;
  drop();
  state_ = State::seeking;
  seek();
}

// Completions of what was under way find another call.
void Agent::drop() {
  ++call_;
  writes_ = false;
  call_timer_.cancel();
  beat_timer_.cancel();
  error_code ignored;
  stream_.shutdown(tcp::socket::shutdown_both, ignored);  // the guard has a copy
  stream_.close(ignored);
  datagrams_.close(ignored);
  talk_.reset();
}

void Agent::shut() {
  if (state_ == State::shut) return;
  state_ = State::shut;
  ++call_;
  call_timer_.cancel();
  beat_timer_.cancel();
  error_code ignored;
  stream_.shutdown(tcp::socket::shutdown_send, ignored);
  stream_.close(ignored);
  datagrams_.close(ignored);
}

void Agent::leave(const rendezvous::Leave& leave, std::function<void()> done) {
  if (state_ != State::joined) {
    shut();
    return done();
  }
  talk_->send(leave);
  failure_report(std::move(done));
}

// Lets the leader hear what is still unsaid; nothing it says counts any more.
void Agent::failure_report(std::function<void()> done) {
  written_ = [this, done = std::move(done)] {
    shut();
    done();
  };
  write();
}

Agent::Nanoseconds Agent::by_leader(Nanoseconds time) const {
  return time + pulse_.offset().value_or(Nanoseconds(0));
}

// --- Signs of life

void Agent::arm_beats() {
  const auto lease_over = pulse_.heard_until() + settings_.keep_alive;
  const auto next = std::min(next_beat_, lease_over);
  beat_timer_.expires_at(std::chrono::steady_clock::time_point(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(next)));
  const auto call = call_;
  beat_timer_.async_wait([this, call](const error_code& cancelled) {
    if (cancelled || call != call_ || state_ != State::joined) return;
    on_beat_timer();
    if (call == call_ && state_ == State::joined) arm_beats();
  });
}

void Agent::on_beat_timer() {
  const auto now = steady_now();
  if (now >= pulse_.heard_until() + settings_.keep_alive)
    return lose(fmt::format("no heartbeat from it for {:g} s",
                            std::chrono::duration<double>(settings_.keep_alive).count()));
  if (now < next_beat_) return;
  next_beat_ = now + beat_interval_;
  send_beat(now);
}

void Agent::send_beat(Nanoseconds now) {
  const std::string beat = encode(pulse_.next(session_, now), talk_->key_out());
  error_code ignored;
  datagrams_.send_to(asio::buffer(beat), udp::endpoint(leader_.address(), leader_.port()), 0,
                     ignored);
  // Where datagrams do not come through, the stream carries the signs too.
  if (now < next_stream_beat_ || now - datagram_heard_ < settings_.keep_alive / 4) return;
  next_stream_beat_ = now + settings_.keep_alive / 8;
  talk_->send(pulse_.next(session_, now));
  write();
}

void Agent::hear() {
  const auto call = call_;
  datagrams_.async_receive_from(
      asio::buffer(datagram_), from_, [this, call](const error_code& failed, size_t got) {
        if (call != call_ || failed == asio::error::operation_aborted ||
            failed == asio::error::bad_descriptor)
          return;
        const std::string_view bytes(datagram_.data(), failed ? 0 : got);
        const auto beat = rendezvous::decode_heartbeat(bytes, talk_->key_in());
        const auto now = steady_now();
        if (beat && beat->session == session_ && pulse_.hear(*beat, now)) {
          datagram_heard_ = now;
          callbacks_.lease(pulse_.heard_until() + settings_.keep_alive);
        }
        hear();
      });
}

}  // namespace mgpu::launcher
