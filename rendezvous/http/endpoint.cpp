#include "rendezvous/http/endpoint.hpp"

#include <fmt/format.h>

namespace mgpu::rendezvous::http {

std::string Endpoint::authority() const {
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

std::string Endpoint::url() const {
  return (tls ? "https://" : "http://") + authority();
}

}  // namespace mgpu::rendezvous::http
