#include "launcher/nodes/master_address.hpp"

#include <charconv>
#include <string_view>

namespace mgpu::launcher {
MasterAddress split_endpoint(std::string_view endpoint) {
  MasterAddress address;
  const bool bracketed = endpoint.starts_with('[');
  const size_t host_end = bracketed ? endpoint.find(']') : endpoint.rfind(':');
  const size_t colon = bracketed ? host_end + 1 : host_end;
  address.host = endpoint.substr(bracketed ? 1 : 0, host_end - (bracketed ? 1 : 0));
  if (colon < endpoint.size()) {
    const auto port = endpoint.substr(colon + 1);
    std::from_chars(port.data(), port.data() + port.size(), address.port);
  }
  return address;
}

MasterAddress master_address(const Options& options) {
  MasterAddress address;
  if (options.rdzv_backend == "static" && !options.standalone && !options.rdzv_endpoint.empty())
    address = split_endpoint(options.rdzv_endpoint);
  if (options.master_addr) address.host = *options.master_addr;
  if (options.master_port) address.port = *options.master_port;
  return address;
}

}  // namespace mgpu::launcher
