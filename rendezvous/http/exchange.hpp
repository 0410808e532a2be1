#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/http/endpoint.hpp"
#include "rendezvous/http/message.hpp"
#include "rendezvous/resolver.hpp"
#include "rendezvous/tls/session.hpp"

namespace mgpu::rendezvous::http {

// One HTTP request and its response, over a connection that is opened for it and closed afterwards.
// Opening a connection costs a server less than serving a request, and no connection can be stale:
// every request finds out by itself whether the server is reachable.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  enum class Failure { none, no_address, no_connection, no_response, tls, time_limit };
  struct Result {
    std::string problem;  // why there is no response, such as "connection refused"
    Failure failure = Failure::none;
    int status = 0;
    std::string body;              // without what was passed to on_piece
    std::string retry_after = {};  // the header Retry-After
  };
  struct Listener {
    std::function<void(Result)> on_end;  // called once, unless cancelled before
    // For a streamed response: called with each piece of a body with status 200. The time limit
    // then applies to the first piece only.
    std::function<void(std::string_view)> on_piece = {};
  };

  // `tls` may be null for an http endpoint; it and the resolver must outlive the exchange.
  // `max_body` limits the response as in ResponseParser.
  Exchange(boost::asio::io_context& io, Resolver& resolver, const tls::Context* tls,
           Endpoint endpoint, Listener listener,
           std::size_t max_body = ResponseParser::kMaxBodyBytes);

  // Calls no callback before it returns.
  void start(std::string request, std::chrono::milliseconds limit);
  void cancel();  // calls no callback any more

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
  void fail(Failure failure, std::string problem);

  Resolver& resolver_;
  const tls::Context* tls_;
  Endpoint endpoint_;
  Listener listener_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  std::optional<tls::Session> session_;
  ResponseParser parser_;
  std::string request_;
  std::string sending_;
  std::string queued_;  // to send after sending_
  Bytes buffer_;
  const char* timeout_problem_ = "";  // what the limit would end
  bool received_any_ = false;         // anything of the peer
  bool over_ = false;
};

}  // namespace mgpu::rendezvous::http
