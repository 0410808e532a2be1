#pragma once

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::rendezvous::store {

struct Listener {
  UniqueFd socket;  // non-blocking; what it accepts has Nagle's algorithm off
  int port = 0;
};

// Listens on 127.0.0.1, or on [::] for IPv6 and IPv4 (on 0.0.0.0 where there is no IPv6).
// Port 0 takes one that is free. Throws with address and port when they cannot be had.
Listener listen_on_loopback(int port);
Listener listen_on_network(int port);

}  // namespace mgpu::rendezvous::store
