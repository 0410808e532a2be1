#pragma once

#include <string>
#include <string_view>

#include "launcher/options/options.hpp"

namespace mgpu::launcher {

// Where the ranks are told to meet, as far as it is asked for.
struct MasterAddress {
  std::string host = "127.0.0.1";
  int port = 0;  // 0: we choose
  friend bool operator==(const MasterAddress&, const MasterAddress&) = default;
};

// --master-addr and --master-port; where they are not given, the static back-end's
// --rdzv-endpoint says the same, as under torchrun.
MasterAddress master_address(const Options& options);

// "host", "host:port" or "[v6]:port", already checked when it was parsed; port 0: not told.
MasterAddress split_endpoint(std::string_view endpoint);

}  // namespace mgpu::launcher
