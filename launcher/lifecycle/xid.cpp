#include "launcher/lifecycle/xid.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace mgpu::launcher {
namespace {

// From NVIDIA's "XID Errors". 48, 63, 64, 94, 95, 140: memory (ECC, row remapping). 74, 121, 149:
// NVLink and C2C. 79: the bus. 62, 119, 120: firmware.
constexpr std::array kGpuFaults = {48, 62, 63, 64, 74, 79, 94, 95, 119, 120, 121, 140, 149};

}  // namespace

bool reports_gpu_fault(std::string_view line) {
  constexpr std::string_view kXid = "Xid (";
  const auto at = line.find(kXid);
  if (at == std::string_view::npos) return false;
  line.remove_prefix(at + kXid.size());
  constexpr std::string_view kEndOfAddress = "): ";
  const auto end = line.find(kEndOfAddress);
  if (end == std::string_view::npos) return false;
  line.remove_prefix(end + kEndOfAddress.size());
  int number = 0;
  const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  return error == std::errc{} && std::ranges::find(kGpuFaults, number) != kGpuFaults.end();
}

}  // namespace mgpu::launcher
