#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "launcher/devices/devices.hpp"
#include "launcher/options/options.hpp"

namespace mgpu::launcher {

// All that can be told about the GPUs of this machine. The matrices have a row and a column for
// each GPU, and are empty when only the kernel's files told.
struct DeviceReport {
  struct Entry {
    Gpu gpu;
    std::string capability;
    std::uint64_t memory_total = 0;  // bytes
    std::uint64_t memory_used = 0;
    Locality near;
    bool visible = true;  // under our CUDA_VISIBLE_DEVICES
  };

  std::vector<Entry> gpus;
  std::vector<std::vector<std::string>> links;
  std::vector<std::vector<bool>> peers;
  std::string driver;
  std::string shortfall;  // why NVML did not tell; empty when it did
};

// Asks NVML, and where there is none the kernel's files.
DeviceReport report_devices(const Roots& roots,
                            const std::optional<std::string>& cuda_visible_devices);

std::string devices_text(const DeviceReport& report);
std::string devices_json(const DeviceReport& report);

// `mgpu-run devices [--json]`: prints what report_devices finds. Returns the exit status: 0, also
// on a machine without GPUs.
int run_devices_command(const Options& options, std::ostream& out);

}  // namespace mgpu::launcher
