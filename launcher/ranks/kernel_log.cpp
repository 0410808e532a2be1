#include "launcher/ranks/kernel_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "launcher/lifecycle/text_lines.hpp"
#include "launcher/lifecycle/xid.hpp"

namespace mgpu::launcher {
namespace {

constexpr std::size_t kMostReads = 20'000;  // a read of /dev/kmsg returns one record
constexpr std::size_t kMostKills = 256;

// "6,1234,98765,-;text" without the fields before the text.
std::string_view text_of_record(std::string_view record) {
  const auto semicolon = record.find(';');
  return semicolon == std::string_view::npos ? record : record.substr(semicolon + 1);
}

}  // namespace

KernelLog::KernelLog(const std::string& path)
    : log_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {}

void KernelLog::begin_attempt() {
  gpu_fault_.clear();
  oom_kills_.clear();
  place_ = {};
  if (log_) ::lseek(log_.get(), 0, SEEK_END);
}

std::string KernelLog::gpu_fault() {
  read();
  return gpu_fault_;
}

const std::vector<OomRecord>& KernelLog::oom_kills() {
  read();
  return oom_kills_;
}

void KernelLog::read() {
  std::array<char, 8192> bytes{};
  for (std::size_t reads = 0; log_ && reads < kMostReads; ++reads) {
    const auto got = ::read(log_.get(), bytes.data(), bytes.size());
    if (got < 0 && (errno == EPIPE || errno == EINTR)) continue;  // EPIPE: records were overwritten
    if (got <= 0) break;
    for (const auto line : lines_of({bytes.data(), static_cast<std::size_t>(got)})) {
      if (gpu_fault_.empty() && reports_gpu_fault(line)) gpu_fault_ = text_of_record(line);
      if (auto place = oom_cgroup_in(line)) place_ = std::move(*place);
      if (auto kill = oom_record_in(line); kill && oom_kills_.size() < kMostKills) {
        if (kill->pid == place_.pid) kill->cgroup = place_.cgroup;
        oom_kills_.push_back(std::move(*kill));
      }
    }
  }
}

}  // namespace mgpu::launcher
