#include "rendezvous/etcd/url.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include <fmt/format.h>

#include "rendezvous/base/limits.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::rendezvous::etcd {
namespace {

[[noreturn]] void throw_bad_endpoint(std::string_view piece, const std::string& why) {
  throw std::runtime_error(fmt::format("cannot use the etcd endpoint {}: {}", shown(piece), why));
}

std::uint16_t parse_port(std::string_view piece, std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0)
    throw_bad_endpoint(piece, fmt::format("the port must be a number from 1 to {}", kLastPort));
  return port;
}

bool is_host_character(char c) {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  return letter || c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
}

Endpoint parse_endpoint(std::string_view piece, bool tls) {
  Endpoint endpoint{.tls = tls, .port = kDefaultPort};
  auto rest = piece;
  if (rest.find('@') != std::string_view::npos)  // first: other messages show the endpoint
    throw_bad_endpoint("with user:password@", "set user and password with --rdzv-conf");
  if (const auto colon = rest.find("://"); colon != std::string_view::npos) {
    const auto scheme = rest.substr(0, colon);
    if (scheme != "http" && scheme != "https")
      throw_bad_endpoint(piece, "it must begin with http:// or https://");
    endpoint.tls = scheme == "https";
    rest.remove_prefix(colon + 3);
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.find_first_of("/?#") != std::string_view::npos)
    throw_bad_endpoint(piece, "it has a path; write only http://HOST:PORT");
  if (rest.starts_with('[')) {
    const auto close = rest.find(']');
    if (close == std::string_view::npos)
      throw_bad_endpoint(piece, "a ] is missing after the IPv6 address");
    endpoint.host = rest.substr(1, close - 1);
    rest.remove_prefix(close + 1);
    if (!rest.empty() && !rest.starts_with(':'))
      throw_bad_endpoint(piece, "expected :PORT after ]");
    if (endpoint.host.find(':') == std::string::npos)
      throw_bad_endpoint(piece, "only IPv6 addresses are written in []");
  } else {
    const auto colon = rest.find(':');
    if (colon != rest.rfind(':'))
      throw_bad_endpoint(piece, "write an IPv6 address as [ADDRESS]:PORT");
    endpoint.host = rest.substr(0, colon);
    rest.remove_prefix(std::min(colon, rest.size()));
  }
  if (endpoint.host.empty()) throw_bad_endpoint(piece, "it has no host; write http://HOST:PORT");
  if (endpoint.host.size() > 253 || !std::ranges::all_of(endpoint.host, is_host_character))
    throw_bad_endpoint(piece, "invalid host name or address");
  if (!rest.empty()) endpoint.port = parse_port(piece, rest.substr(1));
  return endpoint;
}

}  // namespace

std::vector<Endpoint> parse_endpoints(std::string_view list, bool tls) {
  std::vector<Endpoint> endpoints;
  while (true) {
    const auto comma = list.find(',');
    auto piece = list.substr(0, comma);
    while (piece.starts_with(' ')) piece.remove_prefix(1);
    while (piece.ends_with(' ')) piece.remove_suffix(1);
    auto endpoint = parse_endpoint(piece, tls);
    if (std::ranges::find(endpoints, endpoint) == endpoints.end())
      endpoints.push_back(std::move(endpoint));
    if (endpoints.size() > kMaxEndpoints)
      throw std::runtime_error(
          fmt::format("more than {} etcd endpoints, the limit", kMaxEndpoints));
    if (comma == std::string_view::npos) return endpoints;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace mgpu::rendezvous::etcd
