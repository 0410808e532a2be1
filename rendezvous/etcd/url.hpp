#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mgpu::rendezvous::etcd {

inline constexpr std::size_t kMaxEndpoints = 64;

// The address at which an etcd member serves clients.
struct Endpoint {
  bool tls = false;
  std::string host;  // a name or an address, without brackets
  std::uint16_t port = 2379;

  std::string authority() const;  // "host:port", "[::1]:port"
  std::string url() const;        // "https://host:port"
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// Parses "http(s)://host[:port]" or "host[:port]" (https if `tls`), separated by commas; duplicates
// are dropped. Throws std::runtime_error with a one-line message that shows the invalid part.
std::vector<Endpoint> parse_endpoints(std::string_view list, bool tls = false);

}  // namespace mgpu::rendezvous::etcd
