#include "launcher/hang_evidence/process_snapshot.hpp"

#include <dirent.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <string_view>

#include <fmt/format.h>

#include "launcher/ranks/rank_sessions.hpp"
#include "rendezvous/base/printable.hpp"
#include "rendezvous/base/small_file.hpp"

namespace mgpu::launcher {
namespace {

constexpr std::size_t kMostThreads = 512;

// Empty if it cannot be read.
std::string kernel_text(const std::string& path) {
  auto text = rendezvous::read_kernel_file(path).value_or("");
  while (!text.empty() && (text.back() == '\n' || text.back() == '\0')) text.pop_back();
  return text;
}

std::vector<pid_t> threads_of(pid_t pid) {
  std::vector<pid_t> threads;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(
      ::opendir(fmt::format("/proc/{}/task", pid).c_str()), ::closedir);
  while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    pid_t thread = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), thread).ec == std::errc() &&
        threads.size() < kMostThreads)
      threads.push_back(thread);
  }
  std::ranges::sort(threads);
  return threads;
}

// "0" is what the kernel returns for a thread that does not wait, or that we may not look at.
std::string waits_in(const std::string& folder) {
  const auto function = kernel_text(folder + "/wchan");
  return function == "0" ? std::string() : function;
}

std::string thread_text(pid_t pid, pid_t thread) {
  const auto folder = fmt::format("/proc/{}/task/{}", pid, thread);
  const char state = state_in(kernel_text(folder + "/stat"));
  if (state == 0) return {};
  const auto function = waits_in(folder);
  const auto call = kernel_text(folder + "/syscall");
  std::string text = fmt::format("thread {} ({}): state {}{}{}{}{}\n", thread,
                                 rendezvous::printable(kernel_text(folder + "/comm")), state,
                                 function.empty() ? "" : ", waits in ", function,
                                 call.empty() ? "" : ", system call ", call);
  const auto stack = kernel_text(folder + "/stack");
  for (std::size_t at = 0; at < stack.size();) {
    const auto end = std::min(stack.find('\n', at), stack.size());
    text += fmt::format("    kernel {}\n", stack.substr(at, end - at));
    at = end + 1;
  }
  return text;
}

}  // namespace

char state_in(const std::string& stat) {
  const auto name_end = stat.rfind(')');
  return name_end == stat.npos || name_end + 2 >= stat.size() ? '\0' : stat[name_end + 2];
}

ProcessSnapshot snapshot_of(pid_t pid) {
  const auto folder = fmt::format("/proc/{}", pid);
  const auto stat = kernel_text(folder + "/stat");
  ProcessSnapshot found;
  found.state = state_in(stat);
  if (found.state == 0) return found;
  found.kernel_function = waits_in(folder);
  auto command = kernel_text(folder + "/cmdline");
  std::ranges::replace(command, '\0', ' ');
  found.text = fmt::format(
      "process {}: {}\n\n{}\n\nstat: {}\n\n", pid, rendezvous::printable(command),
      rendezvous::printable_output(kernel_text(folder + "/status")), rendezvous::printable(stat));
  for (const pid_t thread : threads_of(pid)) found.text += thread_text(pid, thread);
  return found;
}

std::vector<pid_t> process_and_descendants(pid_t pid) {
  std::vector<pid_t> family{pid};
  for (const auto& process : members_and_descendants(running_processes(), {}, {pid}))
    if (process.pid != pid) family.push_back(process.pid);
  return family;
}

}  // namespace mgpu::launcher
