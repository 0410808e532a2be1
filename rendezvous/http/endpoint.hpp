#pragma once

#include <cstdint>
#include <string>

namespace mgpu::rendezvous::http {

// Where a server listens.
struct Endpoint {
  bool tls = false;
  std::string host;  // a name or an address, without brackets
  std::uint16_t port = 0;

  std::string authority() const;  // "host:port", "[::1]:port"
  std::string url() const;        // "https://host:port"
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

}  // namespace mgpu::rendezvous::http
