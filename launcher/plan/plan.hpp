#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/options/options.hpp"

namespace mgpu::launcher {

// Which ranks of the job run on this node. A single-node job is {.nproc = n}.
struct Placement {
  int nproc = 1;
  int node_rank = 0;  // torchrun's GROUP_RANK
  int nodes = 1;
  int base_rank = 0;  // global rank of local rank 0
  int world_size = 1;
};

// One attempt: where the ranks connect to each other, and the counts that they receive.
struct Attempt {
  int number = 0;     // TORCHELASTIC_RESTART_COUNT
  int oom_count = 0;  // MGPU_OOM_COUNT
  std::string master_addr = "127.0.0.1";
  int master_port = 0;
  std::string leader_addr = "127.0.0.1";
  std::string log_dir;   // of this attempt, empty: none
  std::string nccl_dir;  // for PyTorch's records of NCCL, empty: none
  // See Contract.
  std::optional<int> replacement = {};
};

// The cores and memory nodes that one rank is bound to; empty vectors: not bound.
struct Binding {
  std::vector<int> cpus;
  std::vector<int> memory_nodes;
  friend bool operator==(const Binding&, const Binding&) = default;
};

// The command line that is executed, before a rank's macros are expanded.
struct CommandLine {
  std::vector<std::string> argv;
  bool python = false;  // signals go to the leader only
};

// One rank to start. `env` holds the changes to our own environment; no value: removed.
struct RankSpec {
  int rank = 0;
  int local_rank = 0;
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::optional<std::string>>> env;
  std::string device;  // for display: "GPU 0" or "cpu"
  Binding binding;
  std::string log_dir;         // empty: none
  bool takes_a_place = false;  // of an earlier process, whose logs it continues
};

// Facts about this machine and our own environment, collected before planning.
struct PlanFacts {
  // The usable GPUs by their names in CUDA_VISIBLE_DEVICES, in CUDA's order; with --gpus the
  // selected ones. Empty: the job runs on CPUs.
  std::vector<std::string> gpus;
  std::optional<std::string> cuda_visible_devices;  // as inherited
  bool omp_num_threads_set = false;
  bool nccl_async_error_handling_set = false;
  bool allocator_set = false;     // PYTORCH_ALLOC_CONF or PYTORCH_CUDA_ALLOC_CONF
  bool nccl_record_set = false;   // where PyTorch writes its records of NCCL
  std::vector<Binding> bindings;  // one per local rank, or empty
  std::string run_id = "none";
  std::string socket_interface = {};  // for gloo, unless the user sets it; empty: gloo chooses
  std::string job_cookie;             // marks every process of this job; empty: not marked
  std::string worker_socket;          // see Contract
};

// How many ranks this node starts: --nproc-per-node, else one per visible GPU but at most the
// scheduler's number of GPUs, else the scheduler's number, else 1. Throws UsageError when that
// exceeds the number of GPUs, unless GPUs may be shared or there are none (then the job runs on
// CPUs). `cpus` is the result for the words cpu and auto.
int number_of_ranks(const Options& options, int visible_gpus, int cpus);

// The ranks of one attempt on this node, by local rank. A pure function.
std::vector<RankSpec> make_rank_specs(const Options& options, const CommandLine& command,
                                      const Placement& placement, const Attempt& attempt,
                                      const PlanFacts& facts);

// Expands the macros in one argument: ${local_rank} and $local_rank as in torchrun, and ${rank},
// ${node_rank}, ${world_size}. `$${local_rank}` stands for the literal text: in a run of `$` right
// before a macro each pair means one `$`, as in torchrun. Every other `$` is left unchanged:
// torchrun halves `$$` everywhere, which breaks sh -c 'echo $$'.
std::string expand_macros(std::string_view text, const Placement& placement, int local_rank);

}  // namespace mgpu::launcher
