#pragma once

#include <string>
#include <string_view>

#include "launcher/options/options.hpp"

namespace mgpu::launcher {

// The MASTER_ADDR and MASTER_PORT of the ranks, as far as the options set them.
struct MasterAddress {
  std::string host = "127.0.0.1";
  int port = 0;  // 0: chosen automatically
  friend bool operator==(const MasterAddress&, const MasterAddress&) = default;
};

// From --master-addr and --master-port. If they are not given, the static back-end's
// --rdzv-endpoint has the same meaning, as with torchrun.
MasterAddress master_address(const Options& options);

// Splits "host", "host:port" or "[v6]:port", which was validated before; port 0: not given.
MasterAddress split_endpoint(std::string_view endpoint);

}  // namespace mgpu::launcher
