#pragma once

#include <sys/socket.h>

#include <set>
#include <string>

// Addresses of a server and of this host. Numeric addresses have neither port nor scope, and
// IPv4-mapped IPv6 addresses are converted to IPv4.
namespace mgpu::servers {

// Empty if it is not an IP address.
std::string numeric_address(const sockaddr& address);

// All addresses of a host name or of a numeric address; empty if it cannot be resolved.
std::set<std::string> addresses_of(const std::string& host);

// Whether a host name or address belongs to this host.
bool is_this_host(const std::string& host);

// The address of this host under which a server at `host` can reach it, with its scope.
std::string local_address_for(const std::string& host);

}  // namespace mgpu::servers
