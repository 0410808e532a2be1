#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "launcher/devices/devices.hpp"
#include "launcher/options/options.hpp"

namespace mgpu::launcher {

// What is known about the GPUs of this machine. The matrices have a row and a column for each GPU;
// they are empty without NVML.
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
  std::string shortfall;  // why NVML is not available; empty: it is
};

// Queries NVML, or reads the kernel's files if NVML is not available.
DeviceReport report_devices(const Roots& roots,
                            const std::optional<std::string>& cuda_visible_devices);

std::string devices_text(const DeviceReport& report);
std::string devices_json(const DeviceReport& report);

// `mgpu-run devices [--json]`: prints the report. Returns the exit status: 0, also on a machine
// without GPUs.
int run_devices_command(const Options& options, std::ostream& out);

}  // namespace mgpu::launcher
