#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// Who serves at a port of this host, and on which GPUs, as /proc shows it.
namespace mgpu::servers {

struct Listener {
  int pid = 0;
  std::string name;                    // of its program
  std::optional<std::string> visible;  // its CUDA_VISIBLE_DEVICES
  std::int64_t workers = 1;            // GPUs that its command line asks for
  friend bool operator==(const Listener&, const Listener&) = default;
};

// The processes that listen at a TCP port, by number; those that we may not look into are left out.
// `proc` is /proc.
std::vector<Listener> listeners(const std::string& proc, std::uint16_t port);

// GPUs as CUDA_VISIBLE_DEVICES names them: the first `count` of those that it leaves, or from 0 on
// without it.
std::vector<std::string> first_gpus(const std::optional<std::string>& visible, std::int64_t count);

// The GPU of a rank, as above.
std::string gpu_of_rank(const std::optional<std::string>& visible, int local_rank);

// The first of the listeners that works on this GPU; null: none does. `workers`: how many GPUs the
// server said that it has, 0 if it did not.
const Listener* user_of(const std::vector<Listener>& listeners, std::int64_t workers,
                        const std::string& gpu);

// Whether a host's name or address is this host's.
bool is_this_host(const std::string& host);

}  // namespace mgpu::servers
