#include "launcher/ranks/rank_cgroups.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "launcher/ranks/cgroup.hpp"
#include "launcher/ranks/memory_cgroup.hpp"

namespace mgpu::launcher {
namespace {

using rendezvous::UniqueFd;

bool give_memory_controller(const std::string& folder) {
  const UniqueFd file(::open((folder + "/cgroup.subtree_control").c_str(), O_WRONLY | O_CLOEXEC));
  constexpr char kMemory[] = "+memory";
  return file && ::write(file.get(), kMemory, sizeof kMemory - 1) > 0;
}

}  // namespace

RankCgroups::RankCgroups(const std::string& v1_parent, const std::string& name, std::uint64_t limit)
    : limit_(limit) {
  if (v1_parent.empty() || limit == 0) return;
  const auto folder = v1_parent + "/" + name;
  if (::mkdir(folder.c_str(), 0755) == 0) v1_ = folder;
}

RankCgroups::~RankCgroups() {
  ranks_.clear();
  if (!v1_.empty()) remove_v1(v1_);
}

void RankCgroups::remove_v1(const std::string& folder) {
  JobCgroup::remove_cgroup(folder);
}

void RankCgroups::begin_attempt(const std::string& v2_job, const std::string& v2_attempt,
                                int ranks) {
  ranks_.clear();
  limited_ = false;
  if (!v1_attempt_.empty()) remove_v1(std::exchange(v1_attempt_, {}));
  const bool v2 =
      !v2_attempt.empty() && give_memory_controller(v2_job) && give_memory_controller(v2_attempt);
  auto parent = v2_attempt;
  if (!v2) {
    if (v1_.empty()) return;
    parent = v1_attempt_ = v1_ + "/attempt_" + std::to_string(attempts_++);
    ::mkdir(parent.c_str(), 0755);
  }
  for (int rank = 0; rank < ranks; ++rank)
    if (!create(parent + "/rank_" + std::to_string(rank), v2)) return ranks_.clear();
  limited_ = limit_ != 0;
}

bool RankCgroups::create(const std::string& folder, bool v2) {
  ::mkdir(folder.c_str(), 0755);
  const auto memory = MemoryCgroup::in(folder);
  if (!memory || (limit_ != 0 && !memory->set_limit(limit_))) return false;
  Rank rank{.folder = folder, .v2 = {}, .v1_procs = {}};
  if (v2)
    rank.v2.reset(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  else
    rank.v1_procs.reset(::open((folder + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
  const bool opened = rank.v2 || rank.v1_procs;
  ranks_.push_back(std::move(rank));
  return opened;
}

const std::string& RankCgroups::folder(int local_rank) const {
  static const std::string none;
  const auto rank = static_cast<std::size_t>(local_rank);
  return rank < ranks_.size() ? ranks_[rank].folder : none;
}

CgroupEntry RankCgroups::entry(int local_rank, int attempt_folder) const {
  const auto rank = static_cast<std::size_t>(local_rank);
  if (rank >= ranks_.size()) return {.folder = attempt_folder};
  const auto& own = ranks_[rank];
  return {.folder = own.v2 ? own.v2.get() : attempt_folder, .procs = own.v1_procs.get()};
}

}  // namespace mgpu::launcher
