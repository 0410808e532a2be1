#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "rendezvous/etcd/tls.hpp"
#include "rendezvous/etcd/url.hpp"
#include "rendezvous/resolver.hpp"

namespace mgpu::rendezvous::etcd {

// Whom a client talks to and as whom.
struct Access {
  std::vector<Endpoint> endpoints;  // one or more
  std::string user = {};            // empty: nobody signs in
  std::string password = {};
  TlsFiles tls = {};
  // How long one member may take before the next is asked.
  std::chrono::milliseconds attempt_limit{2000};
};

// What the calls of a client share: the member that is asked now, the token, and which cluster it
// is. It has its place in memory: calls and watches refer to it.
class Members {
 public:
  // Throws std::runtime_error with one line when there is no endpoint, or one is https and TLS
  // cannot be had.
  Members(boost::asio::io_context& io, Access access);

  std::size_t count() const { return access_.endpoints.size(); }
  const Endpoint& at(std::size_t member) const { return access_.endpoints.at(member); }
  const Access& access() const { return access_; }

  std::size_t current() const { return current_; }
  // The member failed somebody; who comes next is asked the one behind it.
  void mark_failed(std::size_t member);

  // False when the answer is of another cluster than the first was: two clusters would elect two
  // leaders. 0 is no cluster.
  bool is_same_cluster(std::uint64_t cluster);

  bool must_sign_in() const { return !access_.user.empty() && !auth_disabled_ && token.empty(); }
  void set_auth_disabled() { auth_disabled_ = true; }
  void set_auth_enabled() { auth_disabled_ = false; }

  const TlsContext* tls() const { return tls_ ? &*tls_ : nullptr; }

  boost::asio::io_context& io;
  Resolver resolver;
  std::string token;

 private:
  Access access_;
  std::optional<TlsContext> tls_;
  std::size_t current_ = 0;
  std::uint64_t cluster_ = 0;
  bool auth_disabled_ = false;
};

// Why none of the members could be asked, each with what it said last.
class Failures {
 public:
  void note(std::size_t member, std::string why) { why_[member] = std::move(why); }
  bool empty() const { return why_.empty(); }
  std::string text(const Members& members) const;

 private:
  std::map<std::size_t, std::string> why_;
};

}  // namespace mgpu::rendezvous::etcd
