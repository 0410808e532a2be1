#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/options.hpp"

namespace mgpu::launcher {

// Which ranks of the job are ours. A single node is {.nproc = n}.
struct Placement {
  int nproc = 1;
  int node_rank = 0;   // torchrun's GROUP_RANK
  int nodes = 1;
  int base_rank = 0;   // global rank of our local rank 0
  int world_size = 1;
};

// Where the ranks of one attempt find each other and what they are told of it.
struct Attempt {
  int number = 0;      // TORCHELASTIC_RESTART_COUNT
  int oom_count = 0;   // MGPU_OOM_COUNT
  std::string master_addr = "127.0.0.1";
  int master_port = 0;
  std::string log_dir;  // of this attempt, empty: none
};

// The cores and memory nodes one rank is held to; empty vectors: not held.
struct Binding {
  std::vector<int> cpus;
  std::vector<int> memory_nodes;
  friend bool operator==(const Binding&, const Binding&) = default;
};

// The program as it is exec'ed, before a rank's macros are put in.
struct CommandLine {
  std::vector<std::string> argv;
  bool python = false;  // signals go to the leader only
};

// One rank to be started. `env` holds what differs from our own environment; no value: removed.
struct RankSpec {
  int rank = 0;
  int local_rank = 0;
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::optional<std::string>>> env;
  std::string device;   // for people: "GPU 0" or "cpu"
  Binding binding;
  std::string log_dir;  // empty: none
};

}  // namespace mgpu::launcher
