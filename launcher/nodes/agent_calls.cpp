// How an agent finds its leader: the name, its addresses one after the other, and patience.

#include "launcher/nodes/agent.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace mgpu::launcher {

namespace asio = boost::asio;
using asio::ip::tcp;
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

}  // namespace

std::string numeric(const asio::ip::address& address) {
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
  const std::string text = address.to_string();
  return text.substr(0, text.find('%'));
}

std::string Agent::leader_text() const {
  const std::string host = numeric(leader_.address());
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, leader_.port())
                                             : fmt::format("[{}]:{}", host, leader_.port());
}

void Agent::keep_from_ranks(int fd) {
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

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
    failed_to_call(state_ == State::greeting ? "the port is open but nothing answers"
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
      failed_to_call("what listens there does not answer like mgpu-run");
  });
  talk_ = std::make_unique<rendezvous::AgentChannel>(settings_.credentials, settings_.job, "agent",
                                                     leader_text());
  write();
  read();
}

void Agent::failed_to_call(const std::string& why) {
  if (written_) return std::exchange(written_, nullptr)();
  last_problem_ = fmt::format("{}: {}", leader_text(), why);
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
    callbacks_.say(fmt::format("cannot reach the leader{} yet ({}); retrying for {:.0f} s", where(),
                               last_problem_,
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
      fmt::format("could not reach the leader{} within {:g} s: {}", where(),
                  std::chrono::duration<double>(settings_.join_timeout).count(), last_problem_));
}

}  // namespace mgpu::launcher
