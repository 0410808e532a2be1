#include "launcher/ranks/memory_watch.hpp"

#include <unistd.h>

namespace mgpu::launcher {

MemoryWatch::MemoryWatch(const CgroupPaths& paths, const std::string& job_cgroup,
                         const RankCgroups* ranks)
    : ranks_(ranks) {
  // Uses the job's cgroup if it has the memory controller, else our own.
  for (const auto& folder : {job_cgroup, paths.v2, paths.v1_memory})
    if (!shared_) shared_ = MemoryCgroup::in(folder);
}

// In v1 a kill is counted only in the cgroup of the killed process.
std::uint64_t MemoryWatch::kills() const {
  auto sum = shared_ ? shared_->oom_kills() : 0;
  for (int rank = 0; ranks_ && !ranks_->v1_folder().empty() && rank < number_of_ranks_; ++rank)
    if (const auto cgroup = MemoryCgroup::in(ranks_->folder(rank))) sum += cgroup->oom_kills();
  return sum;
}

void MemoryWatch::begin_attempt(int ranks) {
  number_of_ranks_ = ranks;
  baseline_ = kills();
}

MemoryFacts MemoryWatch::facts(int local_rank) const {
  MemoryFacts facts;
  const auto now = kills();
  facts.oom_kills = now > baseline_ ? now - baseline_ : 0;
  auto cgroup = ranks_ ? MemoryCgroup::in(ranks_->folder(local_rank)) : std::nullopt;
  if (!cgroup) cgroup = shared_;
  facts.oom_kills_known = shared_.has_value();
  if (cgroup) {
    // A limit may be that of a cgroup above.
    if (auto limited = cgroup->with_smallest_limit()) cgroup = std::move(limited);
    facts.cgroup = cgroup->folder();
    facts.limit_bytes = cgroup->limit();
    facts.peak_bytes = cgroup->peak();
  }
  facts.host_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                     static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return facts;
}

}  // namespace mgpu::launcher
