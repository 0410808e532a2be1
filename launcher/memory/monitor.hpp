#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/lifecycle/diagnosis.hpp"
#include "launcher/lifecycle/oom_record.hpp"
#include "launcher/memory/gpu_sampler.hpp"
#include "launcher/memory/sampler.hpp"
#include "launcher/output/file_thread.hpp"
#include "launcher/ranks/pid_namespace.hpp"
#include "launcher/ranks/rank_cgroups.hpp"

namespace mgpu::launcher {

// Watches the memory of the ranks and of their GPUs while they run: a sample every 10 s, more often
// at the start of an attempt and when --worker-memory has to be enforced here. Everything that may
// block is done in threads: NVML has its own, so that a driver that is stuck delays nothing else.
class MemoryMonitor {
 public:
  struct Callbacks {
    std::function<void(std::string_view line)> note;
    std::function<pid_t(int local_rank)> running;  // its pid; 0: it does not run
    std::function<void(int local_rank)> kill;      // it and its children
    std::function<void(const SampleRequest&, const MemorySample&)> sampled = {};
  };

  // `gpus` as in CUDA_VISIBLE_DEVICES; `own_cgroup` is the memory cgroup that all ranks share,
  // empty: none; `limit` is --worker-memory, 0: none. `kernel_pids`: see sees_kernel_pids().
  MemoryMonitor(boost::asio::io_context& io, std::vector<std::string> gpus, std::string own_cgroup,
                std::uint64_t limit, Callbacks callbacks, bool kernel_pids = sees_kernel_pids());
  MemoryMonitor(const MemoryMonitor&) = delete;
  MemoryMonitor& operator=(const MemoryMonitor&) = delete;

  // The ranks of an attempt have started.
  void begin_attempt(int base_rank, int ranks, const RankCgroups& cgroups);
  void end_attempt();
  // Another process has taken the rank's place.
  void rank_replaced(int local_rank);
  // The use of the busiest GPU in percent, as read last; -1: unknown.
  int busiest_gpu() const;
  // Adds what is known about a rank that failed. `killed` are the kernel's OOM kills of the
  // attempt.
  void complete(MemoryFacts& facts, int local_rank, pid_t pid,
                const std::vector<OomRecord>& killed) const;

  // Calls `then` when the GPU memory of processes that have ended is free, or after some seconds
  // (less if it does not change) with a note about what is not. A later call replaces one that
  // still waits, whose `then` is not called: its attempt was stopped before its ranks started.
  void when_drained(std::function<void()> then);

 private:
  using Clock = std::chrono::steady_clock;

  void schedule(std::chrono::milliseconds delay);
  void take_sample();
  void take_gpu_sample();
  void show(const GpuSample& sample);
  void evaluate(const MemorySample& sample);
  struct Drain {
    std::function<void()> then;
    Clock::time_point deadline, unchanged_since;
    std::uint64_t left = 0;
  };
  void poll_drained(const std::shared_ptr<Drain>& drain);

  Callbacks callbacks_;
  bool has_gpus_;
  bool kernel_pids_;
  std::shared_ptr<MemorySampler> sampler_;   // used in thread_
  std::shared_ptr<GpuSampler> gpu_sampler_;  // used in gpu_thread_
  boost::asio::steady_timer timer_, drain_timer_, drain_limit_;
  std::shared_ptr<Drain> drain_;  // the one that waits, to which its timers belong; null: none
  SampleRequest request_;
  MemorySample last_;
  std::vector<std::uint64_t> killed_at_;  // by local rank
  int whole_samples_ = 0;                 // of this attempt
  Clock::time_point next_whole_;
  bool active_ = false;  // the ranks run
  bool noted_fall_back_ = false;
  std::optional<Clock::time_point> gpus_asked_;  // since when NVML has not answered
  bool noted_silence_ = false;
  FileThread thread_, gpu_thread_;
};

}  // namespace mgpu::launcher
