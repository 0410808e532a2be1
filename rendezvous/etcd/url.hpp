#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/http/endpoint.hpp"

namespace mgpu::rendezvous::etcd {

inline constexpr std::size_t kMaxEndpoints = 64;

// The address at which an etcd member serves clients.
using http::Endpoint;
inline constexpr std::uint16_t kDefaultPort = 2379;

// Parses "http(s)://host[:port]" or "host[:port]" (https if `tls`), separated by commas; duplicates
// are dropped. Throws std::runtime_error with a one-line message that shows the invalid part.
std::vector<Endpoint> parse_endpoints(std::string_view list, bool tls = false);

}  // namespace mgpu::rendezvous::etcd
