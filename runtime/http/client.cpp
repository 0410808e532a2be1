#include "runtime/http/client.hpp"

#include <fmt/format.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "rendezvous/base/limits.hpp"

namespace mgpu::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;

constexpr std::uint64_t kMaxResponse = 256 << 20;

// One connection. Each operation ends with its result or at the deadline.
class Connection {
 public:
  explicit Connection(Deadline deadline) : stream_(io_) { stream_.expires_at(deadline); }

  void open(const Address& address) {
    beast::error_code failure;
    const auto found = asio::ip::tcp::resolver(io_).resolve(address.host, address.port, failure);
    if (failure)
      throw Unreachable(fmt::format("cannot resolve {}: {}", address.host, failure.message()));
    run_operation("connect", [&](auto done) { stream_.async_connect(found, done); });
  }

  void send(beast::http::request<beast::http::string_body>& request) {
    run_operation("send", [&](auto done) { beast::http::async_write(stream_, request, done); });
  }

  Response read() {
    beast::flat_buffer buffer;
    beast::http::response_parser<beast::http::string_body> parser;
    parser.body_limit(kMaxResponse);
    run_operation("read its answer",
                  [&](auto done) { beast::http::async_read(stream_, buffer, parser, done); });
    return {parser.get().result_int(), std::move(parser.get().body())};
  }

 private:
  template <class Begin>
  void run_operation(const char* what, const Begin& begin) {
    beast::error_code failure;
    begin([&](beast::error_code e, auto&&...) { failure = e; });
    io_.restart();
    io_.run();
    if (failure == beast::error::timeout) throw TimedOut("it did not answer in time");
    if (failure) throw Unreachable(fmt::format("cannot {}: {}", what, failure.message()));
  }

  asio::io_context io_;
  beast::tcp_stream stream_;
};

bool is_port(const std::string& text) {
  return !text.empty() && text.size() <= 5 && text.find_first_not_of("0123456789") == text.npos &&
         std::stoi(text) <= rendezvous::kLastPort;
}

}  // namespace

std::string Address::url() const {
  const bool six = host.find(':') != host.npos;
  return fmt::format("http://{}{}{}:{}{}", six ? "[" : "", host, six ? "]" : "", port, path);
}

Address address_of(const std::string& url) {
  constexpr std::size_t kScheme = 7;
  Address address;
  const auto rest = url.starts_with("http://") ? url.substr(kScheme) : std::string();
  const auto slash = rest.find('/');
  if (slash != rest.npos) address.path = rest.substr(slash);
  const auto authority = rest.substr(0, slash);
  const auto colon = authority.rfind(':');
  const bool bracketed = authority.ends_with(']');
  address.host = colon == authority.npos || bracketed ? authority : authority.substr(0, colon);
  if (colon != authority.npos && !bracketed) address.port = authority.substr(colon + 1);
  if (address.host.starts_with('[') && address.host.ends_with(']'))
    address.host = address.host.substr(1, address.host.size() - 2);
  if (address.host.empty() || !is_port(address.port) || url.find_first_of(" \t\r\n") != url.npos)
    throw std::runtime_error("the address must have the form http://HOST:PORT/PATH");
  return address;
}

Response send_request(const Address& address, const Request& request, Deadline deadline) {
  namespace http = beast::http;
  http::request<http::string_body> message(request.post ? http::verb::post : http::verb::get,
                                           request.path, 11);
  const bool six = address.host.find(':') != address.host.npos;
  message.set(http::field::host,
              fmt::format("{}{}{}:{}", six ? "[" : "", address.host, six ? "]" : "", address.port));
  message.set(http::field::connection, "close");
  if (request.post) {
    message.set(http::field::content_type, "application/json");
    message.body() = request.body;
  }
  message.prepare_payload();
  Connection connection(deadline);
  connection.open(address);
  connection.send(message);
  return connection.read();
}

}  // namespace mgpu::http
