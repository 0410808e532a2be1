#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "rendezvous/etcd/url.hpp"
#include "rendezvous/resolver.hpp"
#include "rendezvous/tls/context.hpp"

namespace mgpu::rendezvous::etcd {

// The endpoints and credentials of a client.
struct Access {
  std::vector<Endpoint> endpoints;  // one or more
  std::string user = {};            // empty: no authentication
  std::string password = {};
  rendezvous::tls::Files tls = {};
  // How long one member may take before the next one is tried.
  std::chrono::milliseconds attempt_limit{2000};
};

// One line for the user if the password is sent to an endpoint without TLS; else empty.
std::string plain_password_warning(const Access& access);

// The longest pause before a call or watch that no member answered is tried again.
inline constexpr std::chrono::milliseconds kLongestPause{1000};

// The state that all calls of a client share: the current member, the token, and the cluster's id.
// Calls and watches hold references to it, so it must not move.
class Members {
 public:
  // Throws std::runtime_error with a one-line message if there is no endpoint, or if one is https
  // and TLS is unavailable.
  Members(boost::asio::io_context& io, Access access);

  std::size_t count() const { return access_.endpoints.size(); }
  const Endpoint& at(std::size_t member) const { return access_.endpoints.at(member); }
  const Access& access() const { return access_; }

  std::size_t current() const { return current_; }
  // Makes the next member the current one, if `member` still is.
  void mark_failed(std::size_t member);

  // False if the response is from another cluster than the first response was: two clusters would
  // elect two leaders. 0 means unknown and is accepted.
  bool is_same_cluster(std::uint64_t cluster);

  bool must_sign_in() const { return !access_.user.empty() && !auth_disabled_ && token.empty(); }
  void set_auth_disabled() { auth_disabled_ = true; }
  void set_auth_enabled() { auth_disabled_ = false; }

  const tls::Context* tls_context() const { return tls_ ? &*tls_ : nullptr; }

  boost::asio::io_context& io;
  Resolver resolver;
  std::string token;

 private:
  Access access_;
  std::optional<tls::Context> tls_;
  std::size_t current_ = 0;
  std::uint64_t cluster_ = 0;
  bool auth_disabled_ = false;
};

// The last error of each member, for the message when all have failed.
class Failures {
 public:
  void note(std::size_t member, std::string why) { why_[member] = std::move(why); }
  bool empty() const { return why_.empty(); }
  std::string text(const Members& members) const;

 private:
  std::map<std::size_t, std::string> why_;
};

}  // namespace mgpu::rendezvous::etcd
