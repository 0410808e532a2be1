#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "launcher/doctor/checks.hpp"
#include "launcher/lifecycle/diagnosis.hpp"

namespace mgpu::launcher {
namespace {

Finding port_finding(const DoctorFacts& facts) {
  if (facts.any_port.error.empty())
    return {"ports", Verdict::pass, "ranks can connect over 127.0.0.1"};
  return {"ports", Verdict::fail, "ranks cannot connect over 127.0.0.1: " + facts.any_port.error,
          "bring the loopback interface up (ip link set lo up) and allow its traffic in the "
          "firewall"};
}

Finding wanted_port_finding(const PortFacts& wanted) {
  const auto check = fmt::format("port {}", wanted.port);
  if (wanted.error.empty()) return {check, Verdict::pass, "free"};
  return {check, Verdict::fail, wanted.error,
          fmt::format("find the process with `ss -ltnp sport = :{}`, or choose another port",
                      wanted.port)};
}

// Matches a name as NCCL and gloo do: the list has prefixes; a leading "=" means exact names, "^"
// excludes the matches.
bool is_chosen(const std::string& name, std::string_view list) {
  const bool all_but = list.starts_with('^');
  if (all_but) list.remove_prefix(1);
  const bool whole = list.starts_with('=');
  if (whole) list.remove_prefix(1);
  bool listed = false;
  while (!list.empty()) {
    const auto comma = std::min(list.find(','), list.size());
    const auto one = list.substr(0, comma);
    if (!one.empty()) listed = listed || (whole ? name == one : name.starts_with(one));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return listed != all_but;
}

std::string interfaces_text(const std::vector<InterfaceFacts>& interfaces) {
  std::string text;
  for (const auto& one : interfaces)
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ", one.name, fmt::join(one.addresses, " "));
  return text;
}

Finding interfaces_finding(const DoctorFacts& facts) {
  if (facts.interfaces.empty())
    return {"network", Verdict::pass, "loopback only: single-node jobs"};
  return {"network", Verdict::pass, interfaces_text(facts.interfaces)};
}

void add_chosen_interfaces(const DoctorFacts& facts, std::vector<Finding>& findings) {
  for (const char* variable : {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}) {
    const auto set = facts.variables.find(variable);
    if (set == facts.variables.end()) continue;
    const auto& list = set->second;
    const bool any = is_chosen("lo", list) ||
                     std::any_of(facts.interfaces.begin(), facts.interfaces.end(),
                                 [&](const auto& one) { return is_chosen(one.name, list); });
    if (any) continue;
    findings.push_back({variable, Verdict::fail,
                        fmt::format("{} matches no interface that is up", list),
                        "unset it, or name one of: lo" + [&] {
                          std::string names;
                          for (const auto& one : facts.interfaces) names += ", " + one.name;
                          return names;
                        }()});
  }
}

void add_fabric(const DoctorFacts& facts, std::vector<Finding>& findings) {
  if (facts.fabric.empty()) return;
  std::vector<std::string> active;
  for (const auto& [name, is_active] : facts.fabric)
    if (is_active) active.push_back(name);
  if (active.empty()) {
    findings.push_back({"infiniband", Verdict::warn, "no port is active",
                        "multi-node jobs use Ethernet: check cables and the subnet manager "
                        "(ibstat)"});
    return;
  }
  const auto& locked = facts.limits.locked_memory;
  if (locked && *locked < 64 * kMiB)
    findings.push_back({"infiniband", Verdict::warn,
                        fmt::format("{} active, but the locked-memory limit is {}",
                                    fmt::join(active, ", "), size_text(*locked)),
                        "run ulimit -l unlimited; start a container with --ulimit memlock=-1"});
  else
    findings.push_back(
        {"infiniband", Verdict::pass, fmt::format("{} active", fmt::join(active, ", "))});
}

// Debugging switches that are often left set.
void add_switches(const DoctorFacts& facts, std::vector<Finding>& findings) {
  struct Switch {
    const char* variable;
    const char* effect;
  };
  for (const auto& [variable, effect] : {
           Switch{"NCCL_P2P_DISABLE", "GPUs communicate through host memory"},
           Switch{"NCCL_SHM_DISABLE", "ranks of one node communicate over the network"},
           Switch{"NCCL_IB_DISABLE", "InfiniBand is not used"},
           Switch{"CUDA_LAUNCH_BLOCKING", "the GPU waits for the CPU after every kernel"},
       }) {
    const auto set = facts.variables.find(variable);
    if (set == facts.variables.end() || set->second.empty() || set->second == "0") continue;
    findings.push_back({variable, Verdict::warn, fmt::format("is {}: {}", set->second, effect),
                        "unset it unless you are debugging"});
  }
}

struct SpaceLimits {
  std::uint64_t fail_below, warn_below;
};

Finding disk_finding(const DiskFacts& disk, const SpaceLimits& limits) {
  const auto check = "disk: " + disk.what;
  const bool needed = disk.what == "current folder" || disk.what == "temporary files";
  if (disk.timed_out)
    return {check, Verdict::fail, disk.path + ": the file system does not respond",
            "a network mount may be gone: see `mount` and `dmesg`"};
  if (!disk.error.empty())
    return {check, needed ? Verdict::fail : Verdict::warn,
            fmt::format("{}: {}", disk.path, disk.error), "choose another folder"};
  const auto text =
      fmt::format("{} of {} free in {}", size_text(disk.free), size_text(disk.total), disk.path);
  if (!disk.writable)
    return {check, Verdict::warn, disk.path + " is not writable",
            disk.what == "current folder" ? "set output_dir and --log-dir to another folder"
                                          : "choose another folder, or change its permissions"};
  if (disk.free < limits.warn_below)
    return {
        check, disk.free < limits.fail_below && needed ? Verdict::fail : Verdict::warn, text,
        "free some space: a checkpoint of 7B parameters takes 14 GB, with optimizer state about "
        "100 GB"};
  if (disk.free_inodes < 0.01)
    return {check, Verdict::warn, text + ", but almost no inodes are free", "remove small files"};
  return {check, Verdict::pass, text};
}

SpaceLimits limits_for(const DiskFacts& disk) {
  if (disk.what == "temporary files") return {64 * kMiB, kGiB};
  return {kGiB, 20 * kGiB};
}

Finding shared_memory_finding(const DiskFacts& shared) {
  constexpr auto* kAdvice =
      "NCCL and data loaders pass data through it: start the container with --shm-size=8g or "
      "--ipc=host, "
      "or run as root: mount -o remount,size=8G /dev/shm";
  if (shared.timed_out || !shared.error.empty() || !shared.writable)
    return {"shared memory", Verdict::fail,
            fmt::format("{}: {}", shared.path,
                        shared.timed_out       ? "does not respond"
                        : shared.error.empty() ? "is not writable"
                                               : shared.error),
            kAdvice};
  const auto text = fmt::format("{} of {} free in {}", size_text(shared.free),
                                size_text(shared.total), shared.path);
  return shared.free < kGiB ? Finding{"shared memory", Verdict::warn, text, kAdvice}
                            : Finding{"shared memory", Verdict::pass, text};
}

Finding memory_finding(const MemoryState& memory) {
  auto text = fmt::format("{} of {} free", size_text(memory.available), size_text(memory.total));
  auto usable = memory.available;
  if (memory.cgroup_limit > 0 && memory.cgroup_limit < memory.total) {
    text += fmt::format(", limited to {} by the cgroup", size_text(memory.cgroup_limit));
    usable = std::min(usable, memory.cgroup_limit);
  }
  if (memory.oom_kills > 0)
    return {"memory", Verdict::warn,
            fmt::format("{}; the kernel's OOM killer has killed {} processes here", text,
                        memory.oom_kills),
            "raise the container's limit, or use fewer ranks and loader threads"};
  if (usable < 2 * kGiB)
    return {"memory", Verdict::warn, text,
            "free some memory, or raise the container's limit: a rank with a GPU needs 2 to 4 GiB"};
  return {"memory", Verdict::pass, text};
}

Finding files_finding(const LimitFacts& limits) {
  if (!limits.open_files) return {"open files", Verdict::pass, "no limit"};
  const auto text = fmt::format("{} per rank", *limits.open_files);
  if (*limits.open_files >= 1024) return {"open files", Verdict::pass, text};
  const auto most = limits.open_files_hard.value_or(65536);
  const auto verdict = *limits.open_files < 256 ? Verdict::fail : Verdict::warn;
  if (most >= 1024) return {"open files", verdict, text, fmt::format("run ulimit -n {}", most)};
  return {"open files", verdict, fmt::format("{}, and the hard limit is {}", text, most),
          "raise the hard limit where it is set: nofile in /etc/security/limits.conf, LimitNOFILE= "
          "of a systemd unit, --ulimit nofile=65536 of a container"};
}

}  // namespace

std::vector<Finding> examine_network(const DoctorFacts& facts) {
  std::vector<Finding> findings{port_finding(facts)};
  if (facts.wanted_port) findings.push_back(wanted_port_finding(*facts.wanted_port));
  findings.push_back(interfaces_finding(facts));
  add_chosen_interfaces(facts, findings);
  add_fabric(facts, findings);
  add_switches(facts, findings);
  return findings;
}

std::vector<Finding> examine_host(const DoctorFacts& facts) {
  std::vector<Finding> findings;
  for (const auto& disk : facts.disks) findings.push_back(disk_finding(disk, limits_for(disk)));
  findings.push_back(shared_memory_finding(facts.shared_memory));
  findings.push_back(memory_finding(facts.memory));
  findings.push_back(files_finding(facts.limits));
  return findings;
}

}  // namespace mgpu::launcher
