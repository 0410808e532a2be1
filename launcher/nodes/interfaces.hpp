#pragma once

#include <string>
#include <vector>

namespace mgpu::launcher {

// A network interface of this machine and one of its addresses, numeric and without a scope.
struct Interface {
  std::string name;
  std::string address;
};

// All interfaces that are up.
std::vector<Interface> interfaces();

}  // namespace mgpu::launcher
