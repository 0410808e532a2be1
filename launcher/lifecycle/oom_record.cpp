#include "launcher/lifecycle/oom_record.hpp"

#include <charconv>

namespace mgpu::launcher {
namespace {

std::uint64_t number_after(std::string_view line, std::string_view name) {
  const auto at = line.find(name);
  std::uint64_t value = 0;
  if (at != line.npos)
    std::from_chars(line.data() + at + name.size(), line.data() + line.size(), value);
  return value;
}

}  // namespace

std::optional<OomRecord> oom_record_in(std::string_view line) {
  constexpr std::string_view kKilled = "Killed process ";
  const auto at = line.find(kKilled);
  if (at == line.npos) return std::nullopt;
  OomRecord record;
  record.pid = static_cast<pid_t>(number_after(line.substr(at), kKilled));
  const auto open = line.find('(', at), numbers = line.find(" total-vm:", at);
  const auto close = numbers == line.npos ? line.npos : line.rfind(')', numbers);
  if (record.pid <= 0 || open == line.npos || close == line.npos || close < open)
    return std::nullopt;
  record.name = line.substr(open + 1, close - open - 1);
  for (const auto* part : {"anon-rss:", "file-rss:", "shmem-rss:"})
    record.bytes += number_after(line, part) * 1024;
  return record;
}

std::optional<OomRecord> oom_cgroup_in(std::string_view line) {
  constexpr std::string_view kCgroup = ",task_memcg=", kTask = ",task=";
  const auto at = line.find("oom-kill:") == line.npos ? line.npos : line.find(kCgroup);
  if (at == line.npos) return std::nullopt;
  const auto begin = at + kCgroup.size(), end = line.find(kTask, begin);
  if (end == line.npos) return std::nullopt;
  OomRecord record;
  record.cgroup = line.substr(begin, end - begin);
  // The name of a program may contain anything.
  const auto pid = line.rfind(",pid=");
  if (pid == line.npos || pid < end) return std::nullopt;
  record.pid = static_cast<pid_t>(number_after(line.substr(pid), ",pid="));
  return record;
}

}  // namespace mgpu::launcher
