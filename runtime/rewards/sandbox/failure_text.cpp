#include "runtime/rewards/sandbox/failure_text.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <sstream>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/host_name.hpp"
#include "rendezvous/base/small_file.hpp"

namespace mgpu::rewards {
namespace {

std::string machine() {
  const std::string name = rendezvous::host_name();
  return name.empty() ? "this machine" : name;
}

const char* description_of(SandboxStep step) {
  using enum SandboxStep;
  switch (step) {
    case make_namespaces:
      return "creating namespaces";
    case map_users:
      return "mapping users";
    case descriptors:
      return "setting its stdin and stdout";
    case session:
      return "creating a session";
    case private_mounts:
      return "making mounts private";
    case open_readable:
      return "opening";
    case read_only:
      return "making the file systems read-only";
    case empty_tmp:
      return "mounting an empty /tmp";
    case small_dev:
      return "mounting a small /dev";
    case show_readable:
      return "mounting";
    case own_proc:
      return "mounting its own /proc";
    case hide_kernel:
      return "hiding /sys/kernel";
    case working_folder:
      return "entering the working folder";
    case unprivileged_user:
      return "changing to the user nobody";
    case drop_capabilities:
      return "dropping capabilities";
    case die_with_trainer:
      return "binding it to the trainer";
    case limits:
      return "limiting its resources";
    case process_limit:
      return "limiting its number of processes";
    case filter:
      return "filtering system calls";
    case run_shell:
      return "running /bin/sh";
  }
  return "an unknown step";
}

// The value of a sysctl; nothing if the kernel does not have it.
std::optional<long> sysctl_value(const char* path) {
  std::istringstream file(rendezvous::read_kernel_file(path).value_or(""));
  long value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

std::string advice_on(const SandboxFailure& failure) {
  if (failure.step == SandboxStep::process_limit && failure.error == ENOTSUP)
    return "root without the capabilities SETUID, SETGID and SETFCAP has no limit; give them to "
           "the "
           "container, or run as another user";
  if (failure.error == EAGAIN) return "raise the limit of processes (ulimit -u)";
  if (failure.step == SandboxStep::filter)
    return "the kernel must support seccomp filters, on x86-64 or aarch64";
  if (sysctl_value("/proc/sys/user/max_user_namespaces") == 0)
    return "run sysctl user.max_user_namespaces=10000 as root";
  if (sysctl_value("/proc/sys/kernel/unprivileged_userns_clone") == 0)
    return "run sysctl kernel.unprivileged_userns_clone=1 as root";
  if (failure.error == ENOSPC || failure.error == EUSERS)
    return "raise the sysctls user.max_user_namespaces, max_pid_namespaces, max_net_namespaces and "
           "max_mnt_namespaces";
  if (failure.error != EPERM && failure.error != EACCES) return "";
  if (::geteuid() != 0 &&
      sysctl_value("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1)
    return "run sysctl kernel.apparmor_restrict_unprivileged_userns=0 as root";
  return "a container must allow it (Docker: --security-opt seccomp=unconfined --security-opt "
         "apparmor=unconfined)";
}

}  // namespace

std::string failure_text(const SandboxFailure& failure, const std::string& path) {
  const auto help = advice_on(failure);
  return fmt::format(
      "reward_sandbox: cannot start a sandbox on {}: {}{}{}: {}; {}{}set reward_sandbox: false if "
      "you trust the reward programs",
      machine(), description_of(failure.step), path.empty() ? "" : " ", path,
      rendezvous::error_text(failure.error), help, help.empty() ? "" : ", or ");
}

}  // namespace mgpu::rewards
