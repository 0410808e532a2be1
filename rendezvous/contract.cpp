#include "rendezvous/contract.hpp"

#include <charconv>
#include <climits>
#include <cstring>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>

#include "rendezvous/base/limits.hpp"

namespace mgpu::rendezvous {
namespace {

using namespace variable;

// Reads variables by name and validates each one.
class Reader {
 public:
  explicit Reader(const Contract::Get& get) : get_(get) {}

  std::string text(const char* name) const {
    const char* value = get_(name);
    if (!value || !*value)
      throw std::runtime_error(
          fmt::format("{} is not set{}; start this program with mgpu-run", name, hint(name)));
    return value;
  }

  std::string text(const char* name, std::string fallback) const {
    const char* value = get_(name);
    return value ? value : fallback;
  }

  int number(const char* name, int min, int max = INT_MAX) const {
    return parse(name, text(name), min, max);
  }

  int number_or(const char* name, int fallback, int min) const {
    const char* value = get_(name);
    return value && *value ? parse(name, value, min, INT_MAX) : fallback;
  }

  bool flag(const char* name, bool fallback) const {
    const char* value = get_(name);
    if (!value || !*value) return fallback;
    const bool yes = std::strcmp(value, "True") == 0;
    if (!yes && std::strcmp(value, "False") != 0)
      throw std::runtime_error(fmt::format("{}={}: must be True or False", name, value));
    return yes;
  }

 private:
  // Why the variable is expected: " although WORLD_SIZE=4 is".
  std::string hint(const char* missing) const {
    for (const char* name : {kRank, kWorldSize, kLocalRank})
      if (const char* value = get_(name); name != missing && value && *value)
        return fmt::format(" although {}={} is", name, value);
    return {};
  }

  static int parse(const char* name, std::string_view value, int min, int max) {
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size())
      throw std::runtime_error(fmt::format("{}={}: must be a whole number", name, value));
    if (number < min || number > max)
      throw std::runtime_error(max == INT_MAX
                                   ? fmt::format("{}={}: must be at least {}", name, value, min)
                                   : fmt::format("{}={}: must be {} to {}", name, value, min, max));
    return number;
  }

  const Contract::Get& get_;
};

void require_below(const char* name, int value, const char* limit_name, int limit) {
  if (value >= limit)
    throw std::runtime_error(
        fmt::format("{}={} is not below {}={}", name, value, limit_name, limit));
}

}  // namespace

std::vector<std::pair<std::string, std::string>> Contract::to_environment() const {
  std::vector<std::pair<std::string, std::string>> variables = {
      {kRank, std::to_string(rank)},
      {kLocalRank, std::to_string(local_rank)},
      {kGroupRank, std::to_string(group_rank)},
      {kRoleRank, std::to_string(role_rank)},
      {kRoleName, role_name},
      {kWorldSize, std::to_string(world_size)},
      {kLocalWorldSize, std::to_string(local_world_size)},
      {kGroupWorldSize, std::to_string(group_world_size)},
      {kRoleWorldSize, std::to_string(role_world_size)},
      {kMasterAddr, master_addr},
      {kMasterPort, std::to_string(master_port)},
      {kRestartCount, std::to_string(restart_count)},
      {kMaxRestarts, std::to_string(max_restarts)},
      {kRunId, run_id},
      {kUseAgentStore, agent_store ? "True" : "False"},
      {kErrorFile, error_file},
      {kOomCount, std::to_string(oom_count)},
      {kLeaderAddr, leader_addr},
  };
  if (!worker_socket.empty()) variables.emplace_back(kWorkerSocket, worker_socket);
  if (replacement) variables.emplace_back(kReplacement, std::to_string(*replacement));
  return variables;
}

bool Contract::is_present(const Get& get) {
  for (const char* name : {kRank, kLocalRank, kWorldSize})
    if (const char* value = get(name); value && *value) return true;
  return false;
}

Contract Contract::from_environment(const Get& get) {
  const Reader read(get);
  Contract c;
  c.rank = read.number(kRank, 0);
  c.local_rank = read.number(kLocalRank, 0);
  c.world_size = read.number(kWorldSize, 1);
  c.local_world_size = read.number(kLocalWorldSize, 1);
  c.master_addr = read.text(kMasterAddr);
  c.master_port = read.number(kMasterPort, 1, kLastPort);
  c.group_rank = read.number_or(kGroupRank, 0, 0);
  c.group_world_size = read.number_or(kGroupWorldSize, c.group_rank + 1, 1);
  c.role_rank = read.number_or(kRoleRank, c.rank, 0);
  c.role_world_size = read.number_or(kRoleWorldSize, c.world_size, 1);
  c.role_name = read.text(kRoleName, "default");
  c.restart_count = read.number_or(kRestartCount, 0, 0);
  c.max_restarts = read.number_or(kMaxRestarts, 0, 0);
  c.run_id = read.text(kRunId, "none");
  c.agent_store = read.flag(kUseAgentStore, false);
  c.error_file = read.text(kErrorFile, "");
  c.oom_count = read.number_or(kOomCount, 0, 0);
  c.leader_addr = read.text(kLeaderAddr, c.master_addr);
  c.worker_socket = read.text(kWorkerSocket, "");
  if (const int number = read.number_or(kReplacement, -1, 0); number >= 0) c.replacement = number;
  require_below(kRank, c.rank, kWorldSize, c.world_size);
  require_below(kLocalRank, c.local_rank, kLocalWorldSize, c.local_world_size);
  require_below(kGroupRank, c.group_rank, kGroupWorldSize, c.group_world_size);
  require_below(kRoleRank, c.role_rank, kRoleWorldSize, c.role_world_size);
  if (c.local_world_size > c.world_size)
    throw std::runtime_error(fmt::format("{}={} is more than {}={}", kLocalWorldSize,
                                         c.local_world_size, kWorldSize, c.world_size));
  return c;
}

}  // namespace mgpu::rendezvous
