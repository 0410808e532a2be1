#include "launcher/devices/devices_command.hpp"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "launcher/devices/nvml.hpp"
#include "rendezvous/base/text_table.hpp"
#include "rendezvous/contract.hpp"

namespace mgpu::launcher {

using rendezvous::table_cell;
using rendezvous::text_table;
namespace {

std::string memory_cell(const DeviceReport::Entry& entry) {
  constexpr double kBytesPerGiB = 1 << 30;
  if (entry.memory_total == 0) return "-";
  return fmt::format("{:.1f} of {:.1f} GiB", entry.memory_used / kBytesPerGiB,
                     entry.memory_total / kBytesPerGiB);
}

void query_nvml(const Nvml& nvml, DeviceReport& report) {
  report.driver = nvml.driver();
  const int count = nvml.count();
  for (int i = 0; i < count; ++i) {
    DeviceReport::Entry entry;
    entry.gpu = {i, nvml.name(i), nvml.uuid(i), nvml.bus_id(i)};
    entry.capability = nvml.capability(i);
    const auto memory = nvml.memory(i);
    entry.memory_total = memory.total;
    entry.memory_used = memory.used;
    report.gpus.push_back(std::move(entry));
    auto& links = report.links.emplace_back();
    auto& peers = report.peers.emplace_back();
    for (int j = 0; j < count; ++j) {
      links.push_back(i == j ? "X" : nvml.link(i, j));
      peers.push_back(i == j || nvml.can_read_peer(i, j));
    }
  }
}

std::string link_table(const DeviceReport& report) {
  std::vector<std::vector<std::string>> rows{{"GPU"}};
  for (size_t i = 0; i < report.links.size(); ++i) {
    rows[0].push_back(std::to_string(i));
    rows.push_back({std::to_string(i)});
    const auto& links = report.links[i];
    rows.back().insert(rows.back().end(), links.begin(), links.end());
  }
  return text_table(rows);
}

std::string peer_lines(const DeviceReport& report) {
  std::string text;
  for (size_t i = 0; i < report.peers.size(); ++i)
    for (size_t j = i + 1; j < report.peers.size(); ++j)
      if (!report.peers[i][j] || !report.peers[j][i])
        text += fmt::format("no P2P between GPU {} and GPU {}\n", i, j);
  return text.empty() ? "P2P between all pairs\n" : text;
}

}  // namespace

DeviceReport report_devices(const Roots& roots,
                            const std::optional<std::string>& cuda_visible_devices) {
  DeviceReport report;
  try {
    const Nvml nvml;
    query_nvml(nvml, report);
  } catch (const std::runtime_error& error) {
    report.shortfall = error.what();
    for (auto& gpu : find_gpus(roots)) report.gpus.emplace_back().gpu = std::move(gpu);
  }
  std::vector<Gpu> gpus;
  for (auto& entry : report.gpus) {
    entry.near = locality_of(entry.gpu.bus_id, roots);
    entry.visible = false;
    gpus.push_back(entry.gpu);
  }
  for (const auto& one : visible_gpus(cuda_visible_devices, gpus))
    if (one.index >= 0) report.gpus[one.index].visible = true;
  return report;
}

std::string devices_text(const DeviceReport& report) {
  if (report.gpus.empty()) {
    if (report.shortfall.empty())
      return "no GPUs: the NVIDIA driver reports none; jobs run on CPUs\n";
    return fmt::format("no GPUs: {}; jobs run on CPUs\n", report.shortfall);
  }
  std::vector<std::vector<std::string>> rows{
      {"GPU", "name", "memory in use", "capability", "NUMA node", "cores", "PCI", "visible"}};
  for (const auto& entry : report.gpus)
    rows.push_back({std::to_string(entry.gpu.index), table_cell(entry.gpu.name), memory_cell(entry),
                    table_cell(entry.capability),
                    entry.near.numa_node < 0 ? "-" : std::to_string(entry.near.numa_node),
                    table_cell(id_list_text(entry.near.cpus)), table_cell(entry.gpu.bus_id),
                    entry.visible ? "yes" : "no"});
  auto text = text_table(rows);
  for (const auto& entry : report.gpus)
    text += fmt::format("GPU {} is {}\n", entry.gpu.index, table_cell(entry.gpu.uuid));
  if (report.gpus.size() > 1 && !report.links.empty())
    text += "\n" + link_table(report) + peer_lines(report);
  if (!report.driver.empty()) text += fmt::format("driver {}\n", report.driver);
  if (!report.shortfall.empty())
    text += fmt::format("memory, capability and links are unknown: {}\n", report.shortfall);
  return text;
}

std::string devices_json(const DeviceReport& report) {
  auto gpus = nlohmann::ordered_json::array();
  for (const auto& entry : report.gpus)
    gpus.push_back({{"index", entry.gpu.index},
                    {"name", entry.gpu.name},
                    {"uuid", entry.gpu.uuid},
                    {"pci_bus_id", entry.gpu.bus_id},
                    {"memory_total_bytes", entry.memory_total},
                    {"memory_used_bytes", entry.memory_used},
                    {"compute_capability", entry.capability},
                    {"numa_node", entry.near.numa_node},
                    {"cores", id_list_text(entry.near.cpus)},
                    {"visible", entry.visible}});
  const nlohmann::ordered_json all = {{"driver", report.driver},
                                      {"gpus", gpus},
                                      {"links", report.links},
                                      {"p2p", report.peers},
                                      {"shortfall", report.shortfall}};
  // A name that is not valid UTF-8 must not prevent the output.
  return all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

int run_devices_command(const Options& options, std::ostream& out) {
  const char* visible = std::getenv(rendezvous::variable::kCudaVisibleDevices);
  const auto report =
      report_devices({}, visible ? std::optional<std::string>(visible) : std::nullopt);
  out << (options.json ? devices_json(report) : devices_text(report));
  return 0;
}

}  // namespace mgpu::launcher
