#pragma once

#include <string>
#include <vector>

namespace mgpu::launcher {

// An address of this machine, numeric and without a scope.
struct Interface {
  std::string name;
  std::string address;
};

// Those that are up.
std::vector<Interface> interfaces();

}  // namespace mgpu::launcher
