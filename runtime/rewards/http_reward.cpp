#include <fmt/format.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <stdexcept>

#include "rendezvous/base/spelling.hpp"
#include "runtime/rewards/outside.hpp"

namespace mgpu::rewards {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

constexpr std::uint64_t kMostAnswer = 64 << 20;

struct Address {
  std::string host;
  std::string port = "80";
  std::string path = "/";
};

Address address_of(const std::string& url) {
  Address address;
  const auto rest = url.substr(7);
  const auto slash = rest.find('/');
  if (slash != rest.npos) address.path = rest.substr(slash);
  const auto authority = rest.substr(0, slash);
  const auto colon = authority.rfind(':');
  const bool bracketed = authority.ends_with(']');
  address.host = colon == authority.npos || bracketed ? authority : authority.substr(0, colon);
  if (colon != authority.npos && !bracketed) address.port = authority.substr(colon + 1);
  if (address.host.starts_with('[') && address.host.ends_with(']'))
    address.host = address.host.substr(1, address.host.size() - 2);
  if (address.host.empty() || address.port.empty() || address.port.size() > 5 ||
      address.port.find_first_not_of("0123456789") != address.port.npos ||
      url.find_first_of(" \r\n") != url.npos)
    throw std::runtime_error("reward " + rendezvous::shown(url) +
                             ": the address is to look like http://HOST:PORT/PATH");
  return address;
}

// Another try may help: nobody answered, or the server says that it cannot now.
class Unavailable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A connection for each question: a server that was restarted is not noticed.
class Http : public Correspondent {
 public:
  explicit Http(const std::string& url) : address_(address_of(url)) {}

  std::string ask(const std::string& line, Deadline deadline) override {
    try {
      return post(line, deadline);
    } catch (const Unavailable& e) {
      if (std::chrono::steady_clock::now() >= deadline) throw;
      return post(line, deadline);
    }
  }

 private:
  std::string post(const std::string& line, Deadline deadline) const {
    asio::io_context io;
    beast::tcp_stream stream(io);
    stream.expires_at(deadline);
    const auto finish = [&](const char* what, const auto& begin) {
      beast::error_code failure;
      begin([&](beast::error_code e, auto&&...) { failure = e; });
      io.restart();
      io.run();
      if (failure == beast::error::timeout)
        throw std::runtime_error("it did not answer in time (reward_timeout)");
      if (failure) throw Unavailable(fmt::format("cannot {}: {}", what, failure.message()));
    };
    beast::error_code failure;
    const auto found = asio::ip::tcp::resolver(io).resolve(address_.host, address_.port, failure);
    if (failure)
      throw Unavailable(fmt::format("cannot look up {}: {}", address_.host, failure.message()));
    finish("connect", [&](auto done) { stream.async_connect(found, done); });
    http::request<http::string_body> request(http::verb::post, address_.path, 11);
    request.set(http::field::host, address_.host + ":" + address_.port);
    request.set(http::field::content_type, "application/json");
    request.set(http::field::connection, "close");
    request.body() = line;
    request.prepare_payload();
    finish("send", [&](auto done) { http::async_write(stream, request, done); });
    beast::flat_buffer buffer;
    http::response_parser<http::string_body> parser;
    parser.body_limit(kMostAnswer);
    finish("read its answer", [&](auto done) { http::async_read(stream, buffer, parser, done); });
    const auto status = parser.get().result_int();
    const auto& body = parser.get().body();
    if (status == 429 || status >= 500)
      throw Unavailable(
          fmt::format("it answered with status {}: {}", status, rendezvous::shown(body)));
    if (status != 200)
      throw std::runtime_error(
          fmt::format("it answered with status {}: {}", status, rendezvous::shown(body)));
    return body;
  }

  Address address_;
};

}  // namespace

std::unique_ptr<Correspondent> make_http_correspondent(const std::string& url) {
  return std::make_unique<Http>(url);
}

}  // namespace mgpu::rewards
