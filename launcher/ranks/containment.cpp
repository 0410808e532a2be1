#include "launcher/ranks/containment.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "launcher/ranks/process_tree.hpp"

namespace mgpu::launcher {

Containment::Containment(int ranks, std::function<bool(pid_t)> is_rank, std::uint64_t rank_memory,
                         char** argv)
    : is_rank_(std::move(is_rank)),
      cookie_(make_cookie()),
      paths_(find_own_cgroups()),
      ranks_(ranks),
      sessions_(ranks) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const auto name = fmt::format("mgpu-{}-{}", ::getpid(), cookie_.substr(0, 8));
  cgroup_ = JobCgroup::create(paths_.v2, name);
  rank_cgroups_ = std::make_unique<RankCgroups>(paths_.v1_memory, name, rank_memory);
  guard_ = std::make_unique<Guard>(
      Guard::Job{cookie_, {cgroup(), rank_cgroups_->v1_folder()}, &sessions_, argv});
}

std::vector<CgroupEntry> Containment::begin_attempt() {
  stop_requested_.clear();
  const int folder = cgroup_ ? cgroup_->new_attempt() : -1;
  rank_cgroups_->begin_attempt(cgroup(), cgroup_ ? cgroup_->attempt_path() : "", ranks_);
  std::vector<CgroupEntry> entries;
  for (int rank = 0; rank < ranks_; ++rank) entries.push_back(rank_cgroups_->entry(rank, folder));
  return entries;
}

// After release() there is nothing to do; after a failure of mgpu-run all processes are killed.
Containment::~Containment() {
  is_rank_ = [](pid_t) { return false; };  // the ranks have exited by now
  if (guard_ && !empty()) kill_all();
}

std::vector<pid_t> Containment::adopted_children() const {
  auto children = children_of_self();
  std::erase_if(children,
                [this](pid_t pid) { return is_rank_(pid) || (guard_ && guard_->pid() == pid); });
  return children;
}

void Containment::reap() {
  for (const pid_t pid : adopted_children()) ::waitpid(pid, nullptr, WNOHANG);
}

bool Containment::child_changed() {
  const SpareDescriptors::Loan loan(spare_);
  const bool guarded = !guard_ || guard_->restart_if_dead();
  reap();
  return guarded;
}

bool Containment::empty() {
  const SpareDescriptors::Loan loan(spare_);
  reap();
  return adopted_children().empty();
}

void Containment::request_stop() {
  const SpareDescriptors::Loan loan(spare_);
  // Only this process reaps its children: until then their pids are not reused.
  for (const pid_t pid : adopted_children())
    if (stop_requested_.insert(pid).second) {
      ::kill(pid, SIGTERM);
      ::kill(pid, SIGCONT);
    }
  for (const pid_t pid : processes_with_cookie(cookie_))
    if (!is_rank_(pid) && stop_requested_.insert(pid).second) {
      signal_carrier(pid, cookie_, SIGTERM);
      signal_carrier(pid, cookie_, SIGCONT);
    }
}

void Containment::kill_all() {
  const SpareDescriptors::Loan loan(spare_);
  if (cgroup_) cgroup_->kill();
  for (const pid_t pid : adopted_children()) ::kill(pid, SIGKILL);
  for (const pid_t pid : processes_with_cookie(cookie_)) signal_carrier(pid, cookie_, SIGKILL);
}

std::vector<pid_t> Containment::orphan_processes() const {
  const SpareDescriptors::Loan loan(spare_);
  auto found = processes_with_cookie(cookie_);
  for (const pid_t pid : adopted_children())
    if (std::find(found.begin(), found.end(), pid) == found.end()) found.push_back(pid);
  return found;
}

void Containment::release() {
  guard_.reset();
  rank_cgroups_.reset();
  cgroup_.reset();
}

}  // namespace mgpu::launcher
