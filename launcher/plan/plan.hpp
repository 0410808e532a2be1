#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/options/options.hpp"

namespace mgpu::launcher {

// Which ranks of the job are ours. A single node is {.nproc = n}.
struct Placement {
  int nproc = 1;
  int node_rank = 0;  // torchrun's GROUP_RANK
  int nodes = 1;
  int base_rank = 0;  // global rank of our local rank 0
  int world_size = 1;
};

// Where the ranks of one attempt find each other and what they are told of it.
struct Attempt {
  int number = 0;     // TORCHELASTIC_RESTART_COUNT
  int oom_count = 0;  // MGPU_OOM_COUNT
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
  std::string device;  // for people: "GPU 0" or "cpu"
  Binding binding;
  std::string log_dir;  // empty: none
};

// What was looked up about this machine and our own environment before planning.
struct PlanFacts {
  // The GPUs we may use, each by the name that CUDA_VISIBLE_DEVICES knows it by, in CUDA's order;
  // with --gpus those that it names. Empty: a job for CPUs.
  std::vector<std::string> gpus;
  std::optional<std::string> cuda_visible_devices;  // as inherited
  bool omp_num_threads_set = false;
  bool nccl_async_error_handling_set = false;
  std::vector<Binding> bindings;  // one a local rank, or none
  std::string run_id = "none";
  std::string socket_interface = {};  // for gloo, unless it is told; empty: its own choice
  std::string job_cookie;             // marks every process of this job; empty: not marked
};

// How many ranks this node starts: what --nproc-per-node says, else one a visible GPU but no more
// than the scheduler has given us, else as many as it says, else 1.
// Throws UsageError when that is more than the GPUs there are, unless GPUs are to be shared or
// there is none at all (then it is a job for CPUs). `cpus` answers the words cpu and auto.
int number_of_ranks(const Options& options, int visible_gpus, int cpus);

// The ranks of one attempt on this node, by local rank. Looks at nothing but its arguments.
std::vector<RankSpec> make_rank_specs(const Options& options, const CommandLine& command,
                                      const Placement& placement, const Attempt& attempt,
                                      const PlanFacts& facts);

// Puts a rank's numbers into one argument: ${local_rank} and $local_rank as torchrun does, and
// ${rank}, ${node_rank}, ${world_size}. `$${local_rank}` is the way to write such a text itself:
// in a run of `$` right before a macro each pair means one `$`, as under torchrun. Every other
// `$` stays as it is: torchrun halves `$$` everywhere, which breaks sh -c 'echo $$'.
std::string expand_macros(std::string_view text, const Placement& placement, int local_rank);

}  // namespace mgpu::launcher
