#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "rendezvous/store/wire.hpp"

namespace mgpu::rendezvous::store {

// Restricts what the clients of a store may request; the default permits everything. A client that
// makes another request is disconnected. The owner of the store is not restricted.
struct RequestPolicy {
  // Clients may read values and wait for keys, but not set, change or delete any key.
  bool read_only = false;
  // Keys that the clients of a read-only store may nevertheless ADD to.
  std::vector<std::string> counters = {};
  // A longer request is rejected before all of it has arrived.
  std::size_t max_request_bytes = std::numeric_limits<std::size_t>::max();

  bool permits(const Request& request) const;
};

}  // namespace mgpu::rendezvous::store
