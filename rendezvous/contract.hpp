#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mgpu::rendezvous {

// Names of the variables that a launcher sets and a worker reads. This is the only place that
// spells them. All but the MGPU_ ones are torchrun's and have the same meaning.
namespace variable {
inline constexpr const char* kRank = "RANK";
inline constexpr const char* kLocalRank = "LOCAL_RANK";
inline constexpr const char* kGroupRank = "GROUP_RANK";
inline constexpr const char* kRoleRank = "ROLE_RANK";
inline constexpr const char* kRoleName = "ROLE_NAME";
inline constexpr const char* kWorldSize = "WORLD_SIZE";
inline constexpr const char* kLocalWorldSize = "LOCAL_WORLD_SIZE";
inline constexpr const char* kGroupWorldSize = "GROUP_WORLD_SIZE";
inline constexpr const char* kRoleWorldSize = "ROLE_WORLD_SIZE";
inline constexpr const char* kMasterAddr = "MASTER_ADDR";
inline constexpr const char* kMasterPort = "MASTER_PORT";
inline constexpr const char* kRestartCount = "TORCHELASTIC_RESTART_COUNT";
inline constexpr const char* kMaxRestarts = "TORCHELASTIC_MAX_RESTARTS";
inline constexpr const char* kRunId = "TORCHELASTIC_RUN_ID";
inline constexpr const char* kUseAgentStore = "TORCHELASTIC_USE_AGENT_STORE";
inline constexpr const char* kErrorFile = "TORCHELASTIC_ERROR_FILE";
inline constexpr const char* kOomCount = "MGPU_OOM_COUNT";
inline constexpr const char* kLeaderAddr = "MGPU_LEADER_ADDR";
inline constexpr const char* kWorkerSocket = "MGPU_WORKER_SOCKET";
inline constexpr const char* kReplacement = "MGPU_REPLACEMENT";

// Used by the launcher and by libraries in the worker, not by the worker's own code.
inline constexpr const char* kSignalsToHandle = "TORCHELASTIC_SIGNALS_TO_HANDLE";
inline constexpr const char* kNcclAsyncErrorHandling = "TORCH_NCCL_ASYNC_ERROR_HANDLING";
inline constexpr const char* kGlooInterface = "GLOO_SOCKET_IFNAME";
inline constexpr const char* kOmpNumThreads = "OMP_NUM_THREADS";
inline constexpr const char* kCudaVisibleDevices = "CUDA_VISIBLE_DEVICES";
// PyTorch reads the second one before version 2.9.
inline constexpr const char* kAllocator = "PYTORCH_ALLOC_CONF";
inline constexpr const char* kCudaAllocator = "PYTORCH_CUDA_ALLOC_CONF";
inline constexpr const char* kJobCookie = "MGPU_JOB_COOKIE";  // marks every process of one job
}  // namespace variable

// The place of one worker in its job, as the launcher passes it to the worker.
struct Contract {
  int rank = 0;        // among all workers of the job
  int local_rank = 0;  // among the workers of its node; 0 for all with --virtual-local-rank
  int group_rank = 0;  // the node rank
  int role_rank = 0;   // among the workers of its role
  std::string role_name = "default";
  int world_size = 1;        // workers in the job
  int local_world_size = 1;  // workers on its node
  int group_world_size = 1;  // nodes in the job
  int role_world_size = 1;   // workers of its role
  std::string master_addr = "127.0.0.1";
  int master_port = 0;    // 0 only in a plan; a worker always gets a port
  int restart_count = 0;  // attempts before this one
  int max_restarts = 0;
  std::string run_id = "none";
  bool agent_store = true;  // false: rank 0 binds master_port itself
  std::string error_file;   // where a worker writes its failure report; empty: nowhere
  int oom_count = 0;        // attempts before this one that ran out of memory
  // At which ranks of all nodes reach the leader's machine; master_addr can be a loopback address.
  std::string leader_addr = "127.0.0.1";
  // Of the launcher on this node: "@NAME", an abstract Unix address; empty: there is none.
  std::string worker_socket;
  // Which replacement of a lost rank this process is, counted from 1 in each attempt; 0: it started
  // with the attempt. Empty: lost ranks are not replaced.
  std::optional<int> replacement;

  // All variables above with their values, in the order above; without the socket if there is none,
  // and without the replacement if it is empty.
  std::vector<std::pair<std::string, std::string>> to_environment() const;

  // Whether RANK, LOCAL_RANK or WORLD_SIZE is set, by a launcher or left over from one.
  using Get = std::function<const char*(const char*)>;
  static bool is_present(const Get& get);

  // Reads the variables; `get` is std::getenv or similar. RANK, LOCAL_RANK, WORLD_SIZE,
  // LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT are required, the others have defaults. Throws
  // std::runtime_error with a one-line message that names a missing or invalid variable.
  static Contract from_environment(const Get& get);

  friend bool operator==(const Contract&, const Contract&) = default;
};

}  // namespace mgpu::rendezvous
