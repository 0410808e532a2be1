#include "runtime/http/client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "rendezvous/http/endpoint.hpp"
#include "rendezvous/http/exchange.hpp"
#include "rendezvous/http/message.hpp"
#include "rendezvous/resolver.hpp"
#include "rendezvous/tls/context.hpp"

#include "rendezvous/base/limits.hpp"

namespace mgpu::http {
namespace {

using rendezvous::http::Endpoint;
using rendezvous::http::Exchange;
using std::chrono::milliseconds;

constexpr const char* kCaSetting = "SSL_CERT_FILE";

// The authorities that servers' certificates must come from, read at the first use.
const rendezvous::tls::Context& tls_context() {
  const auto read = [] {
    const char* file = std::getenv(kCaSetting);
    return rendezvous::tls::Files{.ca = file ? file : "", .ca_setting = kCaSetting};
  };
  static const rendezvous::tls::Context context(read());
  return context;
}

Endpoint endpoint_of(const Address& address) {
  return {.tls = address.tls,
          .host = address.host,
          .port = static_cast<std::uint16_t>(std::stoi(address.port))};
}

bool is_port(const std::string& text) {
  return !text.empty() && text.size() <= 5 && text.find_first_not_of("0123456789") == text.npos &&
         std::stoi(text) <= rendezvous::kLastPort;
}

// Throws the exception for a request that got no response.
void check_response(const Exchange::Result& result) {
  switch (result.failure) {
    using enum Exchange::Failure;
    case none:
      return;
    case time_limit:
      throw TimedOut("it did not answer in time");
    case tls:
      throw TlsRefusal(result.problem);
    case no_connection:
      throw Unreachable("cannot connect: " + result.problem);
    case no_address:
    case no_response:
      throw Unreachable(result.problem);
  }
}

}  // namespace

std::string Address::url() const {
  return endpoint_of(*this).url() + path;
}

Address address_of(const std::string& url) {
  const auto scheme = url.substr(0, url.find("://"));
  Address address{.tls = scheme == "https"};
  if (address.tls) address.port = "443";
  const bool known = address.tls || scheme == "http";
  const auto rest = known && scheme.size() < url.size() ? url.substr(scheme.size() + 3) : "";
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
    throw std::runtime_error(
        "the address must have the form http://HOST:PORT/PATH or https://HOST:PORT/PATH");
  return address;
}

void check_tls(const Address& address) {
  if (address.tls) tls_context();
}

Response send_request(const Address& address, const Request& request, Deadline deadline,
                      const std::stop_token& stop) {
  const auto endpoint = endpoint_of(address);
  const auto text = rendezvous::http::text_of({.authority = endpoint.authority(),
                                               .path = request.path,
                                               .post = request.post,
                                               .body = request.body});
  const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
  boost::asio::io_context io(1);
  rendezvous::Resolver resolver(io);
  std::optional<Exchange::Result> result;
  const auto exchange = std::make_shared<Exchange>(
      io, resolver, address.tls ? &tls_context() : nullptr, endpoint,
      Exchange::Listener{.on_end =
                             [&](Exchange::Result end) {
                               result = std::move(end);
                               io.stop();  // a name may still be being looked up
                             }},
      request.max_response);
  exchange->start(text, std::max(left, milliseconds(0)));
  {
    const std::stop_callback on_stop(stop, [&] { io.stop(); });
    io.run();
  }
  if (!result) {
    exchange->cancel();
    throw Cancelled("the request was cancelled");
  }
  check_response(*result);
  return {static_cast<unsigned>(result->status), std::move(result->body),
          std::move(result->retry_after)};
}

}  // namespace mgpu::http
