#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launcher/memory/held_memory.hpp"
#include "launcher/memory/job_gpus.hpp"
#include "launcher/memory/process_memory.hpp"
#include "launcher/memory/trend.hpp"

namespace mgpu::launcher {

// What to sample: the ranks of this node by local rank.
struct SampleRequest {
  struct Rank {
    int rank = 0;        // global
    pid_t pid = 0;       // 0: it does not run
    std::string cgroup;  // its own memory cgroup, empty: none
  };
  int attempt = 0;
  std::chrono::duration<double> time{0};
  std::vector<Rank> ranks;
  std::string cgroup;       // our own memory cgroup, which limits all ranks together; empty: none
  std::uint64_t limit = 0;  // of each rank, 0: none
  bool whole = true;        // else only the ranks, to enforce the limit
  bool kernel_limits = false;  // else, or if a rank is not in its cgroup, see over_limit
};

// The memory of a job on this node at one time.
struct MemorySample {
  std::vector<RankMemory> ranks;  // by local rank
  std::vector<double> bytes_per_minute;
  std::vector<GpuReading> gpus;  // as read last (see GpuSampler); empty: not known
  HostMemory host;
  std::vector<std::string> warnings;        // lines for the user
  std::map<int, std::uint64_t> over_limit;  // local ranks, and what they use
  std::chrono::milliseconds next{0};        // when a rank may reach its limit at the earliest
};

// Takes samples of host memory, keeps their history, and decides about warnings. It may block, so
// it is for a thread of its own.
class MemorySampler {
 public:
  MemorySample take(const SampleRequest& request);

 private:
  struct RankHistory {
    MemoryTrend trend{MemoryTrend::Rule::level};
    HeldMemory held;
    bool outside = false;  // of its cgroup, in which it should be
  };
  void sample_ranks(const SampleRequest& request, MemorySample& sample);
  void check_cgroup(const SampleRequest& request, std::size_t local_rank, MemorySample& sample);
  void sample_host(const SampleRequest& request, MemorySample& sample);
  std::uint64_t used_by(const SampleRequest& request, std::size_t local_rank,
                        const RankMemory& memory);

  int attempt_ = -1;
  std::vector<RankHistory> rank_histories_;
  MemoryTrend host_trend_{MemoryTrend::Rule::level};
};

}  // namespace mgpu::launcher
