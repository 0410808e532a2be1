#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>

#include "launcher/doctor/look_up.hpp"
#include "launcher/ranks/cgroup.hpp"
#include "launcher/ranks/memory_watch.hpp"
#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {
namespace {

namespace fs = std::filesystem;
using rendezvous::error_text;
using rendezvous::UniqueFd;

UniqueFd tcp_socket() {
  return UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

// "MemTotal:  131072 kB" of /proc/meminfo, in bytes.
std::uint64_t meminfo(const std::string& text, std::string_view key) {
  const auto found = text.find(std::string(key) + ":");
  if (found == text.npos) return 0;
  const auto digit = text.find_first_of("0123456789", found);
  std::uint64_t kib = 0;
  if (digit != text.npos) std::from_chars(text.data() + digit, text.data() + text.size(), kib);
  return kib << 10;
}

// The lowest limit of a v2 cgroup and its ancestors; 0: none.
std::uint64_t tightest_limit(std::string folder) {
  std::uint64_t tightest = 0;
  while (folder.size() > 1) {
    const auto text = read_trimmed(folder + "/memory.max");
    std::uint64_t limit = 0;
    if (text) std::from_chars(text->data(), text->data() + text->size(), limit);
    if (limit > 0) tightest = tightest == 0 ? limit : std::min(tightest, limit);
    folder.resize(folder.rfind('/'));
  }
  return tightest;
}

std::string address_text(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET)
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text,
                sizeof text);
  if (address->sa_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (!IN6_IS_ADDR_LINKLOCAL(&six)) ::inet_ntop(AF_INET6, &six, text, sizeof text);
  }
  return text;
}

}  // namespace

DiskFacts look_at_disk(const std::string& what, const std::string& path) {
  DiskFacts disk{.what = what, .path = path};
  // A folder that does not exist yet will be created in its nearest existing parent.
  fs::path there = path;
  std::error_code error;
  while (!fs::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  if (there.empty()) there = ".";
  struct statvfs stats{};
  if (::statvfs(there.c_str(), &stats) != 0) {
    disk.error = error_text(errno);
    return disk;
  }
  disk.total = static_cast<std::uint64_t>(stats.f_blocks) * stats.f_frsize;
  disk.free = static_cast<std::uint64_t>(stats.f_bavail) * stats.f_frsize;
  if (stats.f_files > 0)
    disk.free_inodes = static_cast<double>(stats.f_favail) / static_cast<double>(stats.f_files);
  disk.writable = ::access(there.c_str(), W_OK | X_OK) == 0;
  return disk;
}

PortFacts try_port(int port) {
  PortFacts facts{.port = port};
  const auto failed = [&](const char* what) {
    facts.error = fmt::format("cannot {} it: {}", what, error_text(errno));
    return facts;
  };
  const UniqueFd server = tcp_socket(), client = tcp_socket();
  if (!server || !client) return failed("create a socket for");
  const int on = 1;
  ::setsockopt(server.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  // A requested port is also used by other nodes, so it must be free on all interfaces.
  address.sin_addr.s_addr = htonl(port == 0 ? INADDR_LOOPBACK : INADDR_ANY);
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  if (::bind(server.get(), plain, size) != 0) return failed("bind");
  if (port != 0) return facts;
  if (::listen(server.get(), 1) != 0) return failed("listen on");
  if (::getsockname(server.get(), plain, &size) != 0) return failed("find");
  // A firewall may drop the packets silently.
  const timeval patience{.tv_sec = 2, .tv_usec = 0};
  ::setsockopt(client.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (::connect(client.get(), plain, size) != 0) return failed("connect to");
  return facts;
}

std::vector<InterfaceFacts> find_interfaces() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return {};
  std::vector<InterfaceFacts> found;
  for (const auto* one = all; one; one = one->ifa_next) {
    if (!one->ifa_addr || !(one->ifa_flags & IFF_UP) || one->ifa_flags & IFF_LOOPBACK) continue;
    const auto address = address_text(one->ifa_addr);
    if (address.empty()) continue;
    const auto known = std::find_if(found.begin(), found.end(),
                                    [&](const auto& other) { return other.name == one->ifa_name; });
    if (known != found.end())
      known->addresses.push_back(address);
    else
      found.push_back({one->ifa_name, {address}});
  }
  ::freeifaddrs(all);
  return found;
}

std::map<std::string, bool> find_fabric(const Roots& roots) {
  std::map<std::string, bool> fabric;
  const auto folder = roots.sys + "/class/infiniband";
  for (const auto& name : names_in(folder)) {
    bool active = false;
    for (const auto& port : names_in(fmt::format("{}/{}/ports", folder, name))) {
      const auto state = read_trimmed(fmt::format("{}/{}/ports/{}/state", folder, name, port));
      active = active || (state && state->find("ACTIVE") != state->npos);
    }
    fabric[name] = active;
  }
  return fabric;
}

MemoryState look_at_memory(const Roots& roots) {
  const auto text = read_trimmed(roots.proc + "/meminfo").value_or("");
  const auto cgroups = find_own_cgroups();
  const auto facts = MemoryWatch(cgroups, "").facts();
  MemoryState memory{.total = meminfo(text, "MemTotal"),
                     .available = meminfo(text, "MemAvailable")};
  memory.oom_kills = facts.oom_kills;
  memory.cgroup_limit = tightest_limit(cgroups.v2);
  if (facts.limit_bytes > 0)
    memory.cgroup_limit = memory.cgroup_limit == 0
                              ? facts.limit_bytes
                              : std::min<std::uint64_t>(memory.cgroup_limit, facts.limit_bytes);
  return memory;
}

}  // namespace mgpu::launcher
