#pragma once

#include <stdexcept>
#include <string>

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::rendezvous::store {

struct Listener {
  UniqueFd socket;  // non-blocking; accepted sockets have TCP_NODELAY set
  int port = 0;
};

// Another program listens there.
struct PortInUse : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Listens on 127.0.0.1, on [::] for IPv6 and IPv4 (on 0.0.0.0 if there is no IPv6), or on one
// numeric address of this machine. Port 0 means any free port. Throws an error with address and
// port if it cannot listen: PortInUse, or std::runtime_error.
Listener listen_on_loopback(int port);
Listener listen_on_network(int port);
Listener listen_on_address(const std::string& address, int port);

}  // namespace mgpu::rendezvous::store
