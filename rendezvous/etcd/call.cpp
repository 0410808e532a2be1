#include "rendezvous/etcd/call.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/error.hpp>

#include "rendezvous/base/spelling.hpp"
#include "rendezvous/etcd/requests.hpp"

namespace mgpu::rendezvous::etcd {

using boost::system::error_code;
using namespace std::chrono_literals;

namespace {

constexpr const char* kNoEtcd = "it does not answer like etcd v3";
constexpr int kMostSignIns = 3;  // of one call
constexpr auto kLongestPause = 1000ms;

std::string stranger(const Exchange::Result& result) {
  if (result.body.find("HTTP request to an HTTPS server") != std::string::npos)
    return "it requires TLS; did you mean https://?";
  return fmt::format("{} (HTTP status {})", kNoEtcd, result.status);
}

}  // namespace

Call::Call(Members& members, Question question)
    : members_(members),
      question_(std::move(question)),
      deadline_(members.io),
      pause_(members.io) {}

void Call::start() {
  deadline_.expires_after(question_.limit);
  deadline_.async_wait([self = shared_from_this()](const error_code& error) {
    if (error || self->over_) return;
    if (self->failures_.empty())
      self->failures_.note(
          self->member_, fmt::format("no answer within {:.3g} s",
                                     std::chrono::duration<double>(self->question_.limit).count()));
    self->members_.leave(self->member_);
    self->finish({.text = "etcd does not answer: " + self->failures_.text(self->members_)});
  });
  attempt();
}

void Call::cancel() {
  over_ = true;
  question_.done = nullptr;
  deadline_.cancel();
  pause_.cancel();
  if (exchange_) exchange_->cancel();
  exchange_.reset();
}

void Call::attempt() {
  member_ = members_.current();
  members_.must_sign_in() ? sign_in() : ask();
}

void Call::exchange(const std::string& path, const std::string& token, const std::string& body,
                    std::function<void(Exchange::Result)> on_end) {
  const auto& endpoint = members_.at(member_);
  exchange_ = std::make_shared<Exchange>(members_.io, members_.resolver, members_.tls(), endpoint,
                                         Exchange::Listener{.on_end = std::move(on_end)});
  exchange_->start(http_post(endpoint.authority(), path, token, body),
                   members_.access().attempt_limit);
}

void Call::sign_in() {
  const auto& access = members_.access();
  exchange("/v3/auth/authenticate", "", sign_in_request(access.user, access.password),
           [self = shared_from_this()](const auto& result) { self->signed_in(result); });
}

void Call::signed_in(const Exchange::Result& result) {
  if (!result.problem.empty()) return next_member(result.problem);
  ErrorAnswer error;
  switch (judge(result.status, result.body, error)) {
    case Verdict::good: {
      auto answer = SignInAnswer::parse(result.body);
      if (!answer) return next_member(kNoEtcd);
      members_.token = std::move(answer->token);
      return ask();
    }
    case Verdict::no_users:
      members_.knows_no_users();
      return ask();
    case Verdict::next_member:
      return next_member(error.message);
    case Verdict::sign_in:
    case Verdict::refused:
      return finish(
          {.text = fmt::format("etcd at {} rejected the user {}: {}", members_.at(member_).url(),
                               shown(members_.access().user), error.message),
           .code = error.code,
           .lasting = true});
    case Verdict::not_an_etcd:
      return next_member(stranger(result));
  }
}

void Call::ask() {
  sent_ = BootClock::now();
  exchange(question_.path, members_.token, question_.body,
           [self = shared_from_this()](const auto& result) { self->answered(result); });
}

void Call::answered(const Exchange::Result& result) {
  if (!result.problem.empty()) return next_member(result.problem);
  ErrorAnswer error;
  switch (judge(result.status, result.body, error)) {
    case Verdict::good: {
      std::uint64_t cluster = 0;
      if (!question_.understand(result.body, cluster)) return next_member(kNoEtcd);
      if (!members_.is_ours(cluster))
        return next_member(
            "it belongs to another etcd cluster than the member that answered first");
      return finish({});
    }
    case Verdict::next_member:
      return next_member(error.message);
    case Verdict::sign_in:
      return sign_in_again(error.message);
    case Verdict::no_users:
      members_.token.clear();
      members_.knows_no_users();
      return next_member(error.message);
    case Verdict::refused:
      return finish({.text = fmt::format("etcd at {} rejected {}: {}", members_.at(member_).url(),
                                         question_.path, error.message),
                     .code = error.code,
                     .lasting = error.code == 7});
    case Verdict::not_an_etcd:
      return next_member(stranger(result));
  }
}

void Call::sign_in_again(const std::string& why) {
  if (members_.access().user.empty())
    return finish({.text = fmt::format("etcd at {} requires a user and a password: {}",
                                       members_.at(member_).url(), why),
                   .code = 16,
                   .lasting = true});
  members_.token.clear();
  members_.knows_users();
  if (++sign_ins_ > kMostSignIns) return next_member(why);
  sign_in();
}

void Call::next_member(std::string why) {
  failures_.note(member_, std::move(why));
  members_.leave(member_);
  if (++failed_in_a_row_ % members_.count() != 0) return attempt();
  pause_.expires_after(next_pause_);
  next_pause_ = std::min<std::chrono::milliseconds>(2 * next_pause_, kLongestPause);
  pause_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error && !self->over_) self->attempt();
  });
}

void Call::finish(Problem problem) {
  const auto done = std::move(question_.done);
  const auto sent = sent_;
  cancel();
  done(std::move(problem), sent);
}

}  // namespace mgpu::rendezvous::etcd
