#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

// Finds in /proc which processes listen at a port of this host and which GPUs they use.
namespace mgpu::servers {

struct Listener {
  int pid = 0;
  std::string name;                    // of its program
  std::optional<std::string> visible;  // its CUDA_VISIBLE_DEVICES
  std::int64_t workers = 1;            // GPUs that its command line requests
  friend bool operator==(const Listener&, const Listener&) = default;
};

// The processes that listen at a TCP port, ordered by pid. Processes that we may not inspect are
// left out. `proc` is /proc.
std::vector<Listener> listeners(const std::string& proc, std::uint16_t port);

// The users whose processes listen at a TCP port.
std::set<uid_t> listening_users(const std::string& proc, std::uint16_t port);

// The first `count` GPUs that CUDA_VISIBLE_DEVICES (`visible`) lists, or 0 to `count` - 1 without
// it.
std::vector<std::string> first_gpus(const std::optional<std::string>& visible, std::int64_t count);

// The GPU of a rank, by the same rule.
std::string gpu_of_rank(const std::optional<std::string>& visible, int local_rank);

// The first listener that uses this GPU, or null. `workers` is the number of GPUs that the server
// reported, 0 if it reported none.
const Listener* listener_on(const std::vector<Listener>& listeners, std::int64_t workers,
                            const std::string& gpu);

// The error of a rank whose GPU the server at `url` uses, or nothing if none of its listeners does.
std::optional<std::string> shared_gpu_error(const std::vector<Listener>& listeners,
                                            std::int64_t workers, const std::string& gpu, int rank,
                                            const std::string& url);

}  // namespace mgpu::servers
