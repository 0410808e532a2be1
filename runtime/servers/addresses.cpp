#include "runtime/servers/addresses.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::servers {
namespace {

using ResolvedHost = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

ResolvedHost resolve_host(const std::string& host, const char* port, const addrinfo* wanted) {
  addrinfo* first = nullptr;
  if (::getaddrinfo(host.c_str(), port, wanted, &first) != 0) first = nullptr;
  return {first, &::freeaddrinfo};
}

std::set<std::string> own_addresses() {
  std::set<std::string> own{"0.0.0.0", "::"};
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return own;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(first, &::freeifaddrs);
  for (const auto* each = first; each != nullptr; each = each->ifa_next)
    if (each->ifa_addr != nullptr) own.insert(numeric_address(*each->ifa_addr));
  own.erase("");
  return own;
}

}  // namespace

std::string numeric_address(const sockaddr& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &address, sizeof v4);
    ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
  } else if (address.sa_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &address, sizeof v6);
    const auto* bytes = v6.sin6_addr.s6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
      ::inet_ntop(AF_INET, bytes + 12, text, sizeof text);
    else
      ::inet_ntop(AF_INET6, bytes, text, sizeof text);
  }
  return text;
}

std::set<std::string> addresses_of(const std::string& host) {
  std::set<std::string> addresses;
  const auto resolved = resolve_host(host, nullptr, nullptr);
  for (const auto* each = resolved.get(); each != nullptr; each = each->ai_next)
    addresses.insert(numeric_address(*each->ai_addr));
  addresses.erase("");
  return addresses;
}

bool is_this_host(const std::string& host) {
  const auto own = own_addresses();
  const auto addresses = addresses_of(host);
  return std::any_of(addresses.begin(), addresses.end(), [&](const std::string& address) {
    return address.starts_with("127.") || own.contains(address);
  });
}

std::string local_address_for(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_DGRAM;
  const auto resolved = resolve_host(host, "9", &wanted);
  char text[NI_MAXHOST] = "127.0.0.1";
  if (!resolved) return text;
  const rendezvous::UniqueFd fd(::socket(resolved->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  // A connected UDP socket has the source address of the route to the host.
  if (::connect(fd.get(), resolved->ai_addr, resolved->ai_addrlen) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0)
    return text;
  ::getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof text, nullptr, 0,
                NI_NUMERICHOST);
  return text;
}

}  // namespace mgpu::servers
