#include "launcher/ranks/process_tree.hpp"

#include <dirent.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "rendezvous/base/small_file.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {
namespace {

using rendezvous::read_kernel_file;
using rendezvous::UniqueFd;

constexpr size_t kMaxEnvironment = 8u << 20;  // above the kernel's own limit for argv and env

std::string environment_text(pid_t pid) {
  return rendezvous::read_small_file(fmt::format("/proc/{}/environ", pid), kMaxEnvironment).text;
}

std::optional<pid_t> as_pid(std::string_view name) {
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return pid;
}

template <class Visit>
void for_each_process(Visit visit) {
  std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), ::closedir);
  if (!proc) return;
  while (const dirent* entry = ::readdir(proc.get()))
    if (const auto pid = as_pid(entry->d_name)) visit(*pid);
}

// Only for kernels without CONFIG_PROC_CHILDREN.
std::vector<pid_t> children_by_scan() {
  std::vector<pid_t> children;
  for_each_process([&](pid_t pid) {
    const auto stat = read_kernel_file(fmt::format("/proc/{}/stat", pid)).value_or("");
    const size_t after_name = stat.rfind(')');
    if (after_name == std::string::npos || after_name + 4 > stat.size()) return;
    const auto parent = std::string_view(stat).substr(after_name + 4);  // after ") S "
    if (as_pid(parent.substr(0, parent.find(' '))) == ::getpid()) children.push_back(pid);
  });
  return children;
}

}  // namespace

std::string make_cookie() {
  std::uint64_t bits[2] = {};
  if (::getrandom(bits, sizeof bits, 0) != sizeof bits)
    bits[0] = static_cast<std::uint64_t>(::getpid());
  return fmt::format("{:016x}{:016x}", bits[0], bits[1]);
}

std::string join_cookies(std::string_view inherited, std::string_view own) {
  return inherited.empty() ? std::string(own) : fmt::format("{}:{}", inherited, own);
}

bool carries_cookie(std::string_view environment, std::string_view cookie) {
  const std::string key = fmt::format("{}=", kCookieVariable);
  for (size_t begin = 0; begin < environment.size();) {
    const size_t end = std::min(environment.find('\0', begin), environment.size());
    const auto entry = environment.substr(begin, end - begin);
    if (entry.starts_with(key)) return entry.find(cookie, key.size()) != std::string_view::npos;
    begin = end + 1;
  }
  return false;
}

std::vector<pid_t> processes_with_cookie(std::string_view cookie) {
  std::vector<pid_t> found;
  for_each_process([&](pid_t pid) {
    if (carries_cookie(environment_text(pid), cookie)) found.push_back(pid);
  });
  return found;
}

std::vector<pid_t> children_of_self() {
  const std::string path = fmt::format("/proc/self/task/{}/children", ::getpid());
  if (::access(path.c_str(), R_OK) != 0) return children_by_scan();
  const std::string text = read_kernel_file(path).value_or("");
  std::vector<pid_t> children;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    if (const auto pid = as_pid(std::string_view(text).substr(begin, end - begin)))
      children.push_back(*pid);
    begin = end + 1;
  }
  return children;
}

bool signal_carrier(pid_t pid, std::string_view cookie, Signal signal) {
  UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd) return false;
  if (!carries_cookie(environment_text(pid), cookie)) return false;
  return ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal.number(), nullptr, 0) == 0;
}

}  // namespace mgpu::launcher
