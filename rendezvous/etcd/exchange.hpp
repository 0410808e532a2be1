#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/etcd/http.hpp"
#include "rendezvous/etcd/tls.hpp"
#include "rendezvous/etcd/url.hpp"
#include "rendezvous/resolver.hpp"

namespace mgpu::rendezvous::etcd {

// One request and its answer, over a connection of its own that is opened for it and closed after
// it. A connection costs a member less than a request does, and nothing is left that could be
// stale: every request learns for itself whether the member is there.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  struct Result {
    std::string problem;  // why there is no answer, in a few words: "connection refused"
    int status = 0;
    std::string body;  // what has not gone to on_piece
  };
  struct Listener {
    std::function<void(Result)> on_end;  // once, unless cancelled before
    // For an answer that goes on and on: the pieces of a body with status 200. The time limit is
    // then that of the first piece.
    std::function<void(std::string_view)> on_piece = {};
  };

  // `tls` may be null for an http endpoint; it and the resolver must outlive the exchange.
  Exchange(boost::asio::io_context& io, Resolver& resolver, const TlsContext* tls,
           Endpoint endpoint, Listener listener);

  // Nothing of the listener is called before this returns.
  void start(std::string request, std::chrono::milliseconds limit);
  void cancel();  // nothing is called any more

 private:
  using Bytes = std::array<char, 16 << 10>;

  void connect(Resolver::Addresses addresses, std::string last_problem);
  void connected();
  void send(std::string bytes);
  void read();
  void received(std::string_view bytes);
  void peer_closed();
  void deliver();
  void finish(Result result);
  void fail(std::string problem) { finish({.problem = std::move(problem)}); }

  Resolver& resolver_;
  const TlsContext* tls_;
  Endpoint endpoint_;
  Listener listener_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  std::optional<TlsSession> session_;
  ResponseParser parser_;
  std::string request_;
  std::string sending_;
  std::string queued_;  // to be sent after that
  Bytes buffer_;
  const char* timeout_problem_ = "";  // what the limit would end
  bool received_any_ = false;         // anything of the peer
  bool over_ = false;
};

}  // namespace mgpu::rendezvous::etcd
