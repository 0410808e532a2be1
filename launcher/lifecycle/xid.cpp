#include "launcher/lifecycle/xid.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace mgpu::launcher {
namespace {

// From NVIDIA's Xid catalog for A100 and newer GPUs (driver 610): where it asks for a reset of the
// GPU or a restart of the machine, or may ask for it after a look at further numbers; 94, where a
// defect of the memory was contained to one program; and 167, 171 and 172, errors without a
// recommendation. What the catalog tells to ignore, such as the remapping of a memory row (63) or a
// corrected error of a link (121), is no reason for a failure.
constexpr std::array kGpuFaults = {
    48, 62,  64,  94,  95,  140, 156, 171, 172,  // memory
    46, 109, 110, 119, 120, 143, 151, 158,       // firmware and engines
    74, 136, 144, 145, 146, 149, 150, 155,       // NVLink
    79, 167,                                     // the bus
};

}  // namespace

bool reports_gpu_fault(std::string_view line) {
  constexpr std::string_view kXidTag = "Xid (";
  const auto at = line.find(kXidTag);
  if (at == std::string_view::npos) return false;
  line.remove_prefix(at + kXidTag.size());
  constexpr std::string_view kEndOfAddress = "): ";
  const auto end = line.find(kEndOfAddress);
  if (end == std::string_view::npos) return false;
  line.remove_prefix(end + kEndOfAddress.size());
  int number = 0;
  const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  return error == std::errc{} && std::ranges::find(kGpuFaults, number) != kGpuFaults.end();
}

}  // namespace mgpu::launcher
