#include "launcher/agent.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <boost/asio/write.hpp>

#include <algorithm>
#include <utility>

#include "rendezvous/base/spelling.hpp"

namespace mgpu::launcher {

namespace asio = boost::asio;
using asio::ip::tcp;
using asio::ip::udp;
using boost::system::error_code;
using rendezvous::steady_now;

namespace {

constexpr auto kCallTimeout = std::chrono::seconds(4);
constexpr auto kGreetingTimeout = std::chrono::seconds(10);
constexpr auto kShortestPause = std::chrono::milliseconds(20);
constexpr auto kLongestPause = std::chrono::milliseconds(1000);
constexpr auto kFirstComplaint = std::chrono::seconds(3);
constexpr auto kComplainEvery = std::chrono::minutes(1);
constexpr int kCouldNotMeet = 75;

std::string text_of(const tcp::endpoint& endpoint) {
  const std::string host = numeric(endpoint.address());
  return endpoint.address().is_v6() && host.find(':') != std::string::npos
             ? fmt::format("[{}]:{}", host, endpoint.port())
             : fmt::format("{}:{}", host, endpoint.port());
}

// Asio leaves its sockets open across exec.
void keep_from_ranks(int fd) {
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

}  // namespace

std::string numeric(const asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
  const std::string text = address.to_string();
  return text.substr(0, text.find('%'));
}

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
  if (state_ == State::joined) return lose(host.empty() ? problem : "another node leads now");
  if (state_ != State::seeking && state_ != State::calling && state_ != State::greeting) return;
  drop();
  pause_ = {};
  seek();
}

// --- Finding the leader

void Agent::seek() {
  state_ = State::seeking;
  if (settings_.host.empty()) return try_again();
  const auto call = ++call_;
  resolver_.resolve(settings_.host, [this, call](const auto& addresses, const auto& problem) {
    if (state_ == State::seeking && call == call_) on_resolved(addresses, problem);
  });
}

void Agent::on_resolved(const rendezvous::Resolver::Addresses& addresses,
                        const std::string& problem) {
  candidates_.clear();
  next_candidate_ = 0;
  for (const auto& address : addresses)
    candidates_.emplace_back(address, static_cast<std::uint16_t>(settings_.port));
  if (!problem.empty())
    last_problem_ = fmt::format("cannot resolve {}: {}", settings_.host, problem);
  callbacks_.resolved(candidates_);
  if (state_ == State::seeking) call_next();
}

void Agent::call_next() {
  if (next_candidate_ == candidates_.size()) {
    resolver_.forget(settings_.host);
    return try_again();
  }
  leader_ = candidates_[next_candidate_++];
  state_ = State::calling;
  const auto call = ++call_;
  error_code failed;
  stream_ = tcp::socket(io_);
  stream_.open(leader_.protocol(), failed);
  if (failed) return failed_to_call(failed.message());
  keep_from_ranks(stream_.native_handle());
  call_timer_.expires_after(kCallTimeout);
  call_timer_.async_wait([this, call](const error_code& cancelled) {
    if (cancelled || call != call_) return;
    failed_to_call(state_ == State::greeting ? "something listens there that does not answer"
                                             : "no answer");
  });
  stream_.async_connect(leader_, [this, call](const error_code& refused) {
    if (call == call_ && state_ == State::calling) on_connected(refused);
  });
}

void Agent::on_connected(const error_code& failed) {
  if (failed) return failed_to_call(failed.message());
  error_code ignored;
  stream_.set_option(tcp::no_delay(true), ignored);
  stream_.set_option(asio::socket_base::keep_alive(true), ignored);
  our_address_ = numeric(stream_.local_endpoint(ignored).address());
  leader_address_ = numeric(leader_.address());
  state_ = State::greeting;
  call_timer_.expires_after(kGreetingTimeout);
  const auto call = call_;
  call_timer_.async_wait([this, call](const error_code& cancelled) {
    if (!cancelled && call == call_)
      failed_to_call("something listens there that does not answer as an mgpu-run");
  });
  talk_ = std::make_unique<rendezvous::AgentTalk>(settings_.credentials, settings_.job, "agent",
                                                  text_of(leader_));
  write();
  read();
}

void Agent::failed_to_call(const std::string& why) {
  if (written_) return std::exchange(written_, nullptr)();
  last_problem_ = fmt::format("{}: {}", text_of(leader_), why);
  drop();
  state_ = State::seeking;
  call_next();
}

void Agent::try_again() {
  const auto now = steady_now();
  if (now >= give_up_at_) return give_up();
  const auto since = now - std::max(told_at_, began_);
  if (told_at_.count() == 0 ? since > kFirstComplaint : since > kComplainEvery) {
    told_at_ = now;
    callbacks_.say(fmt::format("cannot reach the leader{} yet ({}); trying on for {:.0f} s",
                               where(), last_problem_,
                               std::chrono::duration<double>(give_up_at_ - now).count()));
  }
  pause_ = std::clamp<std::chrono::milliseconds>(pause_ * 2, kShortestPause, kLongestPause);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(give_up_at_ - now);
  state_ = State::seeking;
  call_timer_.expires_after(std::min(pause_, left));
  call_timer_.async_wait([this](const error_code& cancelled) {
    if (!cancelled && state_ == State::seeking) seek();
  });
}

std::string Agent::where() const {
  return settings_.host.empty() ? std::string()
                                : fmt::format(" at {}:{}", settings_.host, settings_.port);
}

void Agent::give_up() {
  shut();
  callbacks_.end(
      kCouldNotMeet,
      fmt::format("could not meet the leader{} within {:g} s: {}", where(),
                  std::chrono::duration<double>(settings_.join_timeout).count(), last_problem_));
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
  std::vector<rendezvous::Talk::Heard> heard;
  const auto call = call_;
  try {
    talk_->receive(bytes, heard);
  } catch (const rendezvous::Mismatch& mismatch) {
    return last_words([this, why = std::string(mismatch.what())] { callbacks_.end(2, why); });
  } catch (const std::exception& problem) {
    return lose(problem.what());
  }
  for (auto& item : heard) {
    if (call != call_ || state_ == State::shut) return;
    if (auto* beat = std::get_if<rendezvous::Beat>(&item)) {
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
    callbacks_.end(refusal->status, fmt::format("{} refuses: {}", text_of(leader_), refusal->why));
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
  beat_interval_ = std::clamp<Nanoseconds>(Nanoseconds(welcome.beat_interval),
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
  last_problem_ = fmt::format("{}: {}", text_of(leader_), why);
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
  last_words(std::move(done));
}

// Lets the leader hear what is still unsaid; nothing it says counts any more.
void Agent::last_words(std::function<void()> done) {
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
    return lose(fmt::format("nothing was heard of it for {:g} s",
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
        const auto beat = rendezvous::decode_beat(bytes, talk_->key_in());
        const auto now = steady_now();
        if (beat && beat->session == session_ && pulse_.hear(*beat, now)) {
          datagram_heard_ = now;
          callbacks_.lease(pulse_.heard_until() + settings_.keep_alive);
        }
        hear();
      });
}

}  // namespace mgpu::launcher
