#include "rendezvous/etcd/call.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/error.hpp>

#include "rendezvous/base/spelling.hpp"
#include "rendezvous/etcd/requests.hpp"

namespace mgpu::rendezvous::etcd {

using boost::system::error_code;

namespace {

constexpr const char* kNotEtcd = "it does not answer like etcd v3";
constexpr int kMaxSignIns = 3;  // per call

std::string describe_non_etcd(const http::Exchange::Result& result) {
  if (result.body.find("HTTP request to an HTTPS server") != std::string::npos)
    return "it requires TLS; did you mean https://?";
  return fmt::format("{} (HTTP status {})", kNotEtcd, result.status);
}

}  // namespace

Call::Call(Members& members, Request request)
    : members_(members), request_(std::move(request)), deadline_(members.io), pause_(members.io) {}

void Call::start() {
  deadline_.expires_after(request_.limit);
  deadline_.async_wait([self = shared_from_this()](const error_code& error) {
    if (error || self->finished_) return;
    if (self->failures_.empty())
      self->failures_.note(
          self->member_, fmt::format("no answer within {:.3g} s",
                                     std::chrono::duration<double>(self->request_.limit).count()));
    self->members_.mark_failed(self->member_);
    self->finish({.text = "etcd does not answer: " + self->failures_.text(self->members_)});
  });
  attempt();
}

void Call::cancel() {
  finished_ = true;
  request_.done = nullptr;
  deadline_.cancel();
  pause_.cancel();
  if (exchange_) exchange_->cancel();
  exchange_.reset();
}

void Call::attempt() {
  member_ = members_.current();
  members_.must_sign_in() ? sign_in() : send_request();
}

void Call::exchange(const std::string& path, const std::string& token, const std::string& body,
                    std::function<void(http::Exchange::Result)> on_end) {
  const auto& endpoint = members_.at(member_);
  exchange_ = std::make_shared<http::Exchange>(
      members_.io, members_.resolver, members_.tls_context(), endpoint,
      http::Exchange::Listener{.on_end = std::move(on_end)});
  exchange_->start(http_post(endpoint.authority(), path, token, body),
                   members_.access().attempt_limit);
}

void Call::sign_in() {
  const auto& access = members_.access();
  exchange("/v3/auth/authenticate", "", sign_in_request(access.user, access.password),
           [self = shared_from_this()](const auto& result) { self->on_signed_in(result); });
}

void Call::on_signed_in(const http::Exchange::Result& result) {
  if (!result.problem.empty()) return next_member(result.problem);
  ErrorAnswer error;
  switch (classify(result.status, result.body, error)) {
    case ResponseKind::ok: {
      auto answer = SignInAnswer::parse(result.body);
      if (!answer) return next_member(kNotEtcd);
      members_.token = std::move(answer->token);
      return send_request();
    }
    case ResponseKind::auth_disabled:
      members_.set_auth_disabled();
      return send_request();
    case ResponseKind::next_member:
      return next_member(error.message);
    case ResponseKind::sign_in:
    case ResponseKind::rejected:
      return finish(
          {.text = fmt::format("etcd at {} rejected the user {}: {}", members_.at(member_).url(),
                               shown(members_.access().user), error.message),
           .code = error.code,
           .permanent = true});
    case ResponseKind::not_etcd:
      return next_member(describe_non_etcd(result));
  }
}

void Call::send_request() {
  sent_ = BootClock::now();
  exchange(request_.path, members_.token, request_.body,
           [self = shared_from_this()](const auto& result) { self->on_answer(result); });
}

void Call::on_answer(const http::Exchange::Result& result) {
  if (!result.problem.empty()) return next_member(result.problem);
  ErrorAnswer error;
  switch (classify(result.status, result.body, error)) {
    case ResponseKind::ok: {
      std::uint64_t cluster = 0;
      if (!request_.parse(result.body, cluster)) return next_member(kNotEtcd);
      if (!members_.is_same_cluster(cluster))
        return next_member(
            "it belongs to another etcd cluster than the member that answered first");
      return finish({});
    }
    case ResponseKind::next_member:
      return next_member(error.message);
    case ResponseKind::sign_in:
      return sign_in_again(error.message);
    case ResponseKind::auth_disabled:
      members_.token.clear();
      members_.set_auth_disabled();
      return next_member(error.message);
    case ResponseKind::rejected:
      return finish({.text = fmt::format("etcd at {} rejected {}: {}", members_.at(member_).url(),
                                         request_.path, error.message),
                     .code = error.code,
                     .permanent = error.code == 7});
    case ResponseKind::not_etcd:
      return next_member(describe_non_etcd(result));
  }
}

void Call::sign_in_again(const std::string& why) {
  if (members_.access().user.empty())
    return finish({.text = fmt::format("etcd at {} requires a user and a password: {}",
                                       members_.at(member_).url(), why),
                   .code = 16,
                   .permanent = true});
  members_.token.clear();
  members_.set_auth_enabled();
  if (++sign_ins_ > kMaxSignIns) return next_member(why);
  sign_in();
}

void Call::next_member(std::string why) {
  failures_.note(member_, std::move(why));
  members_.mark_failed(member_);
  if (++failed_in_a_row_ % members_.count() != 0) return attempt();
  pause_.expires_after(next_pause_);
  next_pause_ = std::min(2 * next_pause_, kLongestPause);
  pause_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error && !self->finished_) self->attempt();
  });
}

void Call::finish(Problem problem) {
  const auto done = std::move(request_.done);
  const auto sent = sent_;
  cancel();
  done(std::move(problem), sent);
}

}  // namespace mgpu::rendezvous::etcd
