#include "launcher/memory/monitor.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "launcher/lifecycle/memory_text.hpp"
#include "launcher/ranks/memory_cgroup.hpp"

namespace mgpu::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirst{1'000}, kFirstEnforced{100}, kInterval{10'000};
constexpr milliseconds kDrainPoll{50}, kLongestDrain{5'000}, kLongestUnchanged{1'000},
    kNvmlSilent{8'000};
// The driver keeps some memory of a GPU that nobody uses.
constexpr std::uint64_t kDrained = 1ull << 30;

struct DrainState {
  std::uint64_t left = 0;  // of processes that have ended
  std::string held;        // which GPUs are not free, and who uses them
};

DrainState read_drain_state(JobGpus& gpus) {
  DrainState state;
  for (const auto& reading : gpus.read()) {
    if (reading.memory.used <= kDrained) continue;
    const auto holders = gpus.holders(reading.gpu);
    const auto left = undrained(reading, holders);
    const auto share = share_text(reading.memory.used, reading.memory.total);
    if (left > kDrained) state.left += left;
    const auto text = holders_text(holders);
    state.held += fmt::format("{}GPU {}: {} in use{}{}", state.held.empty() ? "" : "; ",
                              reading.gpu, share, text.empty() ? "" : ", ", text);
  }
  return state;
}

}  // namespace

MemoryMonitor::MemoryMonitor(boost::asio::io_context& io, std::vector<std::string> gpus,
                             std::string own_cgroup, std::uint64_t limit, Callbacks callbacks,
                             bool kernel_pids)
    : callbacks_(std::move(callbacks)),
      has_gpus_(!gpus.empty()),
      kernel_pids_(kernel_pids),
      sampler_(std::make_shared<MemorySampler>()),
      gpu_sampler_(std::make_shared<GpuSampler>(std::move(gpus), kernel_pids)),
      timer_(io),
      drain_timer_(io),
      drain_limit_(io),
      thread_(io),
      gpu_thread_(io) {
  request_.attempt = -1;
  request_.cgroup = std::move(own_cgroup);
  request_.limit = limit;
}

void MemoryMonitor::begin_attempt(int base_rank, int ranks, const RankCgroups& cgroups) {
  ++request_.attempt;
  request_.kernel_limits = cgroups.limited();
  request_.ranks.clear();
  for (int i = 0; i < ranks; ++i)
    request_.ranks.push_back({.rank = base_rank + i, .pid = 0, .cgroup = cgroups.folder(i)});
  killed_at_.assign(static_cast<std::size_t>(ranks), 0);
  last_ = {};
  whole_samples_ = 0;
  next_whole_ = Clock::now() + kFirst;
  active_ = true;
  const bool enforced_here = request_.limit != 0 && !request_.kernel_limits;
  if (enforced_here && !std::exchange(noted_fall_back_, true))
    callbacks_.note(
        "cannot create a memory cgroup, so mgpu-run enforces --worker-memory itself; a rank that "
        "grows quickly may exceed it for a moment");
  schedule(enforced_here ? kFirstEnforced : kFirst);
}

void MemoryMonitor::rank_replaced(int local_rank) {
  const auto rank = static_cast<std::size_t>(local_rank);
  if (rank < killed_at_.size()) killed_at_[rank] = 0;
}

int MemoryMonitor::busiest_gpu() const {
  int percent = -1;
  for (const auto& reading : last_.gpus) percent = std::max(percent, reading.activity.utilization);
  return percent;
}

void MemoryMonitor::end_attempt() {
  active_ = false;
  timer_.cancel();
}

void MemoryMonitor::schedule(milliseconds delay) {
  timer_.expires_after(delay);
  timer_.async_wait([this](const boost::system::error_code& cancelled) {
    if (!cancelled) take_sample();
  });
}

void MemoryMonitor::take_sample() {
  const auto now = Clock::now();
  request_.time = now.time_since_epoch();
  request_.whole = now >= next_whole_;
  if (request_.whole)
    next_whole_ = now + std::min(kInterval, kFirst * (1 << std::min(whole_samples_++, 4)));
  for (std::size_t i = 0; i < request_.ranks.size(); ++i)
    request_.ranks[i].pid = callbacks_.running(static_cast<int>(i));
  if (request_.whole) take_gpu_sample();
  // The next sample is taken after this one, however long it takes.
  thread_.ask([sampler = sampler_, request = request_] { return sampler->take(request); },
              [this, attempt = request_.attempt](MemorySample sample) {
                if (attempt != request_.attempt) return;
                if (!request_.whole) sample.host = last_.host;
                sample.gpus = std::move(last_.gpus);
                last_ = std::move(sample);
                if (active_) evaluate(last_);
              });
}

void MemoryMonitor::take_gpu_sample() {
  if (!has_gpus_) return;
  if (gpus_asked_) {
    last_.gpus.clear();
    if (Clock::now() >= *gpus_asked_ + kNvmlSilent && !std::exchange(noted_silence_, true))
      callbacks_.note("NVML does not answer; the memory of the GPUs is not known");
    return;
  }
  gpus_asked_ = Clock::now();
  gpu_thread_.ask([sampler = gpu_sampler_, attempt = request_.attempt,
                   time = request_.time] { return sampler->take(attempt, time); },
                  [this, attempt = request_.attempt](const GpuSample& sample) {
                    gpus_asked_.reset();
                    if (attempt == request_.attempt && active_) show(sample);
                  });
}

void MemoryMonitor::show(const GpuSample& sample) {
  for (const auto& line : sample.warnings) callbacks_.note(line);
  last_.gpus = sample.gpus;
  const bool complete = last_.ranks.size() == request_.ranks.size() && last_.host.total != 0;
  if (callbacks_.sampled && complete) callbacks_.sampled(request_, last_);
}

void MemoryMonitor::evaluate(const MemorySample& sample) {
  for (const auto& line : sample.warnings) callbacks_.note(line);
  if (callbacks_.sampled && request_.whole) callbacks_.sampled(request_, sample);
  for (const auto& [rank, bytes] : sample.over_limit) {
    if (callbacks_.running(rank) == 0) continue;
    killed_at_[static_cast<std::size_t>(rank)] = bytes;
    callbacks_.kill(rank);
  }
  if (std::ranges::none_of(request_.ranks, [](const auto& rank) { return rank.pid != 0; })) return;
  const auto until_whole =
      std::chrono::ceil<milliseconds>(std::max(next_whole_ - Clock::now(), Clock::duration(0)));
  schedule(std::min(sample.next, until_whole));
}

void MemoryMonitor::complete(MemoryFacts& facts, int local_rank, pid_t pid,
                             const std::vector<OomRecord>& killed) const {
  const auto rank = static_cast<std::size_t>(local_rank);
  if (rank < killed_at_.size()) facts.killed_at_bytes = killed_at_[rank];
  facts.rank_limit_bytes = request_.limit;
  const RankMemory none, &memory = rank < last_.ranks.size() ? last_.ranks[rank] : none;
  facts.children = static_cast<int>(memory.children.size());
  facts.children_bytes = memory.children_bytes;
  if (rank < last_.bytes_per_minute.size())
    facts.bytes_per_minute = static_cast<std::int64_t>(last_.bytes_per_minute[rank]);
  for (const auto& record : killed) {
    if (!kernel_pids_) {
      // Only the cgroup tells whose process it was.
      if (rank >= request_.ranks.size() ||
          !names_cgroup(record.cgroup, request_.ranks[rank].cgroup))
        continue;
      facts.oom_kills = std::max<std::uint64_t>(facts.oom_kills, 1);
      facts.victim = fmt::format("a process of the rank, {}, which held {}", record.name,
                                 size_text(record.bytes));
      continue;
    }
    const bool own = record.pid == pid;
    if (!own && std::ranges::find(memory.children, record.pid) == memory.children.end()) continue;
    facts.oom_kills = std::max<std::uint64_t>(facts.oom_kills, 1);
    facts.victim = fmt::format("{} {} (pid {}), which used {}",
                               own ? "the rank's process" : "the rank's child", record.name,
                               record.pid, size_text(record.bytes));
  }
}

void MemoryMonitor::when_drained(std::function<void()> then) {
  if (!has_gpus_) return then();
  const auto now = Clock::now();
  const auto drain = std::make_shared<Drain>(Drain{std::move(then), now + kLongestDrain, now, 0});
  drain_ = drain;
  drain_limit_.expires_after(kNvmlSilent);
  drain_limit_.async_wait([this, drain](const boost::system::error_code& cancelled) {
    if (cancelled || drain != drain_) return;
    callbacks_.note(fmt::format(
        "NVML did not answer within {} s; restarting without checking whether GPU memory is free",
        kNvmlSilent.count() / 1000));
    drain_.reset();
    drain->then();
  });
  poll_drained(drain);
}

void MemoryMonitor::poll_drained(const std::shared_ptr<Drain>& drain) {
  gpu_thread_.ask(
      [sampler = gpu_sampler_] { return read_drain_state(sampler->gpus()); },
      [this, drain](const DrainState& state) {
        if (drain != drain_) return;
        const auto now = Clock::now();
        if (std::exchange(drain->left, state.left) != state.left) drain->unchanged_since = now;
        if (state.left != 0 && now < drain->deadline &&
            now < drain->unchanged_since + kLongestUnchanged) {
          drain_timer_.expires_after(kDrainPoll);
          drain_timer_.async_wait([this, drain](const auto& cancelled) {
            if (!cancelled && drain == drain_) poll_drained(drain);
          });
          return;
        }
        drain_limit_.cancel();
        if (state.left != 0)
          callbacks_.note(fmt::format(
              "GPU memory is still in use after the previous attempt: {}; restarting anyway",
              state.held));
        else if (!state.held.empty())
          callbacks_.note(fmt::format("other programs use GPU memory: {}", state.held));
        drain_.reset();
        drain->then();
      });
}

}  // namespace mgpu::launcher
