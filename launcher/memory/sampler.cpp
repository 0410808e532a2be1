#include "launcher/memory/sampler.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "launcher/lifecycle/memory_text.hpp"
#include "launcher/ranks/memory_cgroup.hpp"

namespace mgpu::launcher {
namespace {

using std::chrono::milliseconds;

// No program is known to fill memory faster.
constexpr std::uint64_t kBytesPerMillisecond = 4ull << 20;
constexpr milliseconds kShortest{100}, kLongest{10'000};

milliseconds time_to_fill(std::uint64_t bytes) {
  const auto needed = std::min<std::uint64_t>(bytes / kBytesPerMillisecond, 3'600'000);
  return std::clamp(milliseconds(needed), kShortest, kLongest);
}

}  // namespace

MemorySample MemorySampler::take(const SampleRequest& request) {
  if (attempt_ != request.attempt) {
    attempt_ = request.attempt;
    rank_histories_.assign(request.ranks.size(), {});
  }
  MemorySample sample;
  sample.next = kLongest;
  sample_ranks(request, sample);
  if (request.whole) sample_host(request, sample);
  return sample;
}

// A process that the kernel refuses to create in a cgroup, or to move into it, runs without one. In
// the first moment it may not have moved yet.
void MemorySampler::check_cgroup(const SampleRequest& request, std::size_t local_rank,
                                 MemorySample& sample) {
  const auto& rank = request.ranks[local_rank];
  auto& outside = rank_histories_[local_rank].outside;
  if (outside || !request.whole || request.limit == 0 || rank.cgroup.empty() || rank.pid == 0)
    return;
  outside = !is_in_cgroup(rank.pid, rank.cgroup);
  if (outside)
    sample.warnings.push_back(
        fmt::format("rank {} could not be started in its memory cgroup, so mgpu-run itself checks "
                    "--worker-memory; a rank that grows quickly may exceed it for a moment",
                    rank.rank));
}

std::uint64_t MemorySampler::used_by(const SampleRequest& request, std::size_t local_rank,
                                     const RankMemory& memory) {
  const auto& rank = request.ranks[local_rank];
  if (!rank_histories_[local_rank].outside)
    if (const auto cgroup = MemoryCgroup::in(rank.cgroup)) return cgroup->used_bytes();
  return rank_histories_[local_rank].held.update(memory, request.limit,
                                                 [&] { return exact_bytes(rank.pid, memory); });
}

void MemorySampler::sample_ranks(const SampleRequest& request, MemorySample& sample) {
  for (std::size_t i = 0; i < request.ranks.size(); ++i) {
    const auto& rank = request.ranks[i];
    sample.ranks.push_back(rank.pid != 0 ? memory_of(rank.pid) : RankMemory{});
    const auto& memory = sample.ranks.back();
    auto& trend = rank_histories_[i].trend;
    check_cgroup(request, i, sample);
    const auto used = memory.own == 0 || request.limit == 0 ? 0 : used_by(request, i, memory);
    if (used != 0) {
      if (const auto warning = trend.add({request.time, used, request.limit}))
        sample.warnings.push_back(fmt::format("rank {} uses {}", rank.rank, warning->text()));
      if (!request.kernel_limits || rank_histories_[i].outside) {
        if (used > request.limit) sample.over_limit[static_cast<int>(i)] = used;
        sample.next =
            std::min(sample.next, time_to_fill(request.limit > used ? request.limit - used : 0));
      }
    }
    sample.bytes_per_minute.push_back(trend.bytes_per_minute());
  }
}

// The smaller of the machine's memory and of the limit of the cgroup that all ranks share.
void MemorySampler::sample_host(const SampleRequest& request, MemorySample& sample) {
  sample.host = host_memory();
  std::string what = "host memory";
  const auto own = MemoryCgroup::in(request.cgroup);
  if (const auto cgroup = own ? own->with_smallest_limit() : std::nullopt)
    if (const auto limit = cgroup->limit(); limit != 0 && limit < sample.host.total) {
      sample.host = {.used = cgroup->used_bytes(), .total = limit};
      what = fmt::format("memory of cgroup {}", cgroup->folder());
    }
  const auto warning = host_trend_.add({request.time, sample.host.used, sample.host.total});
  if (!warning) return;
  std::string most;
  const auto largest = std::ranges::max_element(sample.ranks, {}, &RankMemory::total);
  if (largest != sample.ranks.end() && largest->total() != 0)
    most = fmt::format("; rank {} uses {} and its children {}",
                       request.ranks[static_cast<std::size_t>(largest - sample.ranks.begin())].rank,
                       size_text(largest->own), size_text(largest->children_bytes));
  sample.warnings.push_back(fmt::format("{}: {}{}", what, warning->text(), most));
}

}  // namespace mgpu::launcher
