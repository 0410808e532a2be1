#include "runtime/rewards/sandbox/user_map.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>
#include <system_error>

#include "rendezvous/base/small_file.hpp"
#include "rendezvous/base/unique_fd.hpp"
#include "runtime/rewards/sandbox/enter.hpp"

namespace mgpu::rewards {
namespace {

bool has_capabilities(std::uint32_t low) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2]{};
  return ::syscall(SYS_capget, &header, sets) == 0 && (sets[0].effective & low) == low;
}

struct Identity {
  std::string map{};  // every id that exists here, as itself
  bool has_nobody = false;
};

Identity identity_map(const char* path) {
  Identity identity;
  std::istringstream ours(rendezvous::read_kernel_file(path).value_or(""));
  for (unsigned long inside = 0, outside = 0, count = 0; ours >> inside >> outside >> count;) {
    identity.map += fmt::format("{0} {0} {1}\n", inside, count);
    if (inside <= kNobody && kNobody - inside < count) identity.has_nobody = true;
  }
  return identity;
}

void write_at_once(const std::string& path, const std::string& text) {
  const rendezvous::UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw std::system_error(errno, std::generic_category(), path);
}

}  // namespace

UserMap choose_user_map() {
  constexpr std::uint32_t kNeeded = 1U << CAP_SETUID | 1U << CAP_SETGID | 1U << CAP_SETFCAP;
  if (::geteuid() == 0 && has_capabilities(kNeeded)) {
    auto users = identity_map("/proc/self/uid_map");
    auto groups = identity_map("/proc/self/gid_map");
    if (users.has_nobody && groups.has_nobody)
      return {std::move(users.map), std::move(groups.map), true};
  }
  const auto only = [](unsigned ours) {
    return fmt::format("{} {} 1\n", ours == 0 ? kNobody : ours, ours);
  };
  return {only(::geteuid()), only(::getegid()), false};
}

void write_user_map(pid_t child, const UserMap& map) {
  const auto file = [&](const char* name) { return fmt::format("/proc/{}/{}", child, name); };
  if (!map.all) write_at_once(file("setgroups"), "deny");
  write_at_once(file("uid_map"), map.users);
  write_at_once(file("gid_map"), map.groups);
}

}  // namespace mgpu::rewards
