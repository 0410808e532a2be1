#include "launcher/memory/job_gpus.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <functional>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "launcher/lifecycle/memory_text.hpp"
#include "rendezvous/base/printable.hpp"
#include "rendezvous/base/small_file.hpp"

namespace mgpu::launcher {
namespace {

constexpr std::size_t kLongestProgram = 60;
constexpr std::size_t kShownHolders = 4;

// The first words of a command line; empty if the process does not exist.
std::string program_of(int pid) {
  auto text = rendezvous::read_small_file(fmt::format("/proc/{}/cmdline", pid), 4096).text;
  std::replace(text.begin(), text.end(), '\0', ' ');
  while (!text.empty() && text.back() == ' ') text.pop_back();
  if (text.size() > kLongestProgram) text = text.substr(0, kLongestProgram) + "...";
  return rendezvous::printable(text);
}

bool has_opened_gpu(int pid) {
  std::error_code error;
  std::filesystem::directory_iterator files(fmt::format("/proc/{}/fd", pid), error);
  for (; !error && files != std::filesystem::directory_iterator(); files.increment(error)) {
    std::error_code closed;
    if (std::filesystem::read_symlink(files->path(), closed).native().starts_with("/dev/nvidia"))
      return true;
  }
  return false;
}

}  // namespace

JobGpus::JobGpus(std::vector<std::string> names, bool kernel_pids)
    : names_(std::move(names)), kernel_pids_(kernel_pids) {}

JobGpus::~JobGpus() = default;

void JobGpus::load() {
  if (std::exchange(loaded_, true) || names_.empty()) return;
  try {
    nvml_ = std::make_unique<Nvml>();
  } catch (const std::exception&) {
    return;  // `mgpu-run doctor` reports why
  }
  for (const std::string_view name : names_) {
    int number = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error != std::errc() || end != name.data() + name.size()) number = -1;
    for (int gpu = 0; number < 0 && gpu < nvml_->count(); ++gpu)
      if (nvml_->uuid(gpu).starts_with(name)) number = gpu;
    if (number >= 0 && number < nvml_->count()) gpus_.push_back(number);
  }
}

std::vector<GpuReading> JobGpus::read() {
  load();
  std::vector<GpuReading> readings;
  for (const int gpu : gpus_) readings.push_back({gpu, nvml_->memory(gpu), nvml_->activity(gpu)});
  return readings;
}

std::vector<GpuHolder> JobGpus::holders(int gpu) {
  load();
  std::vector<GpuHolder> found;
  if (!nvml_ || gpu >= nvml_->count()) return found;
  for (const auto& process : nvml_->processes(gpu)) {
    const bool visible = kernel_pids_ || has_opened_gpu(process.pid);
    found.push_back({process.pid, process.bytes, visible ? program_of(process.pid) : "", visible});
  }
  std::ranges::sort(found, std::greater{}, &GpuHolder::bytes);
  return found;
}

std::string slowdown_text(std::uint64_t reasons) {
  constexpr std::uint64_t kHardware = 0x8, kWarm = 0x20, kHot = 0x40, kBrake = 0x80;
  if (reasons & (kWarm | kHot)) return "heat";
  if (reasons & kBrake) return "the power supply";
  return reasons & kHardware ? "heat or the power supply" : "";
}

std::uint64_t undrained(const GpuReading& reading, const std::vector<GpuHolder>& holders) {
  std::uint64_t explained = 0;
  for (const auto& holder : holders)
    if (!holder.program.empty()) explained += holder.bytes;
  return reading.memory.used > explained ? reading.memory.used - explained : 0;
}

std::string holders_text(const std::vector<GpuHolder>& holders) {
  std::string text;
  for (std::size_t i = 0; i < std::min(holders.size(), kShownHolders); ++i) {
    const auto& holder = holders[i];
    const auto who = holder.visible
                         ? fmt::format("pid {} ({})", holder.pid,
                                       holder.program.empty() ? "not running here" : holder.program)
                         : std::string("a process whose id is not visible in this container");
    text += fmt::format("{}{} uses {}", i == 0 ? "" : ", ", who,
                        holder.bytes == 0 ? "an unknown amount" : size_text(holder.bytes));
  }
  if (holders.size() > kShownHolders)
    text += fmt::format(" and {} more processes", holders.size() - kShownHolders);
  return text;
}

}  // namespace mgpu::launcher
