#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mgpu::rendezvous::etcd {

inline constexpr std::size_t kMaxEndpoints = 64;

// Where a member of etcd serves its clients.
struct Endpoint {
  bool tls = false;
  std::string host;  // a name or an address, without brackets
  std::uint16_t port = 2379;

  std::string authority() const;  // "host:port", "[::1]:port"
  std::string url() const;        // "https://host:port"
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

// "http(s)://host[:port]" or "host[:port]", which means https if `tls`; several with commas between
// them, each kept once. Throws std::runtime_error with one line that shows the piece that is wrong.
std::vector<Endpoint> parse_endpoints(std::string_view list, bool tls = false);

}  // namespace mgpu::rendezvous::etcd
