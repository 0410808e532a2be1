#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include "rendezvous/http/exchange.hpp"
#include "rendezvous/tls/context.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::rendezvous;
using namespace std::chrono_literals;

namespace {

namespace asio = boost::asio;
using ExchangeFailure = http::Exchange::Failure;

// Accepts one connection, reads a little, sends `answer` and closes the connection; with an empty
// answer it keeps the connection open until the client closes it.
class AnsweringPeer {
 public:
  explicit AnsweringPeer(std::string answer)
      : acceptor_(io_, {asio::ip::address_v4::loopback(), 0}),
        thread_([this, answer = std::move(answer)] {
          asio::ip::tcp::socket socket(io_);
          acceptor_.accept(socket);
          char some[4096];
          boost::system::error_code ignored;
          socket.read_some(asio::buffer(some), ignored);
          asio::write(socket, asio::buffer(answer), ignored);
          while (answer.empty() && !ignored) socket.read_some(asio::buffer(some), ignored);
        }) {}
  ~AnsweringPeer() { thread_.join(); }

  http::Endpoint endpoint() const {
    return {.host = "127.0.0.1", .port = acceptor_.local_endpoint().port()};
  }

 private:
  asio::io_context io_;
  asio::ip::tcp::acceptor acceptor_;
  std::thread thread_;
};

http::Exchange::Result result_of(const http::Endpoint& endpoint,
                                 std::chrono::milliseconds limit = 10s, std::size_t most = 100) {
  asio::io_context io;
  Resolver resolver(io);
  http::Exchange::Result result;
  std::unique_ptr<tls::Context> context;
  if (endpoint.tls) context = std::make_unique<tls::Context>(tls::Files{});
  const auto exchange = std::make_shared<http::Exchange>(
      io, resolver, context.get(), endpoint,
      http::Exchange::Listener{.on_end = [&](auto ended) { result = std::move(ended); }}, most);
  exchange->start(http::text_of({.authority = endpoint.authority(), .path = "/"}), limit);
  io.run();
  return result;
}

}  // namespace

TEST_CASE("a response is returned with its status", "[http]") {
  const AnsweringPeer peer("HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nhello");
  const auto result = result_of(peer.endpoint());
  CHECK(result.failure == ExchangeFailure::none);
  CHECK(result.problem.empty());
  CHECK(result.status == 201);
  CHECK(result.body == "hello");
}

TEST_CASE("a request without a response has a kind of failure and a reason", "[http]") {
  SECTION("nothing listens") {
    const auto result = result_of({.host = "127.0.0.1", .port = 1});
    CHECK(result.failure == ExchangeFailure::no_connection);
    CHECK(result.problem == "Connection refused");
  }
  SECTION("the time limit passes") {
    const AnsweringPeer peer("");
    const auto result = result_of(peer.endpoint(), 50ms);
    CHECK(result.failure == ExchangeFailure::time_limit);
    CHECK(result.problem == "connected, but no answer within 0.05 s");
  }
  SECTION("the server requires TLS and answers with an alert") {
    const AnsweringPeer peer("\x15\x03\x03");
    const auto result = result_of(peer.endpoint());
    CHECK(result.failure == ExchangeFailure::no_response);
    CHECK(result.problem == "it requires TLS; did you mean https://?");
  }
  SECTION("the server does not speak TLS") {
    const AnsweringPeer peer("HTTP/1.1 400 Bad Request\r\n\r\n");
    auto endpoint = peer.endpoint();
    endpoint.tls = true;
    const auto result = result_of(endpoint);
    CHECK(result.failure == ExchangeFailure::tls);
    CHECK(result.problem == "it does not speak TLS; did you mean http://?");
  }
  SECTION("the response is longer than allowed") {
    const AnsweringPeer peer("HTTP/1.1 200 OK\r\n\r\n" + std::string(101, 'x'));
    const auto result = result_of(peer.endpoint());
    CHECK(result.failure == ExchangeFailure::no_response);
    CHECK(result.problem == "its HTTP response is too long");
  }
}
