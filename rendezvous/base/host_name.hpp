#pragma once

#include <unistd.h>

#include <climits>
#include <string>

namespace mgpu::rendezvous {

// Of this machine; empty if it has none.
inline std::string host_name() {
  char name[HOST_NAME_MAX + 1] = "";
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

}  // namespace mgpu::rendezvous
