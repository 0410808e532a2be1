#include "launcher/ranks/rank_group.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <string_view>
#include <utility>

#include "launcher/nodes/token.hpp"
#include "launcher/ranks/spawn.hpp"
#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/small_file.hpp"
#include "rendezvous/contract.hpp"

namespace mgpu::launcher {
namespace {

size_t bytes_for(size_t ranks) {
  return ranks * sizeof(int);
}

// Memory that a child can write to when its exec fails.
volatile int* shared_ints(size_t count) {
  void* memory =
      ::mmap(nullptr, bytes_for(count), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) rendezvous::throw_errno("cannot share memory with the ranks");
  return static_cast<volatile int*>(memory);
}

}  // namespace

RankGroup::RankGroup(boost::asio::io_context& io, Output& output, int ranks, Settings settings)
    : io_(io),
      output_(output),
      settings_(std::move(settings)),
      workers_(static_cast<size_t>(ranks)),
      exec_errors_(shared_ints(workers_.size())),
      null_(::open("/dev/null", O_RDWR | O_CLOEXEC)) {}

RankGroup::~RankGroup() {
  const size_t ranks = workers_.size();
  workers_.clear();
  ::munmap(const_cast<int*>(exec_errors_), bytes_for(ranks));
}

std::optional<std::string> RankGroup::start(const RankSpec& spec, const std::string& prefix) {
  volatile int* const exec_error = &exec_errors_[spec.local_rank];
  clear(spec.local_rank);
  *exec_error = 0;
  try {
    const auto rank = static_cast<std::size_t>(spec.local_rank);
    const auto cgroup = rank < cgroups_.size() ? cgroups_[rank] : CgroupEntry{};
    auto ends = output_.open_rank(spec.local_rank, prefix, spec.log_dir, spec.takes_a_place);
    ChildSetup setup{.argv = spec.argv,
                     .envp = environment_of(spec, environ),
                     .workdir = settings_.workdir,
                     .stdin_fd = spec.rank == 0 && !settings_.own_stdin ? -1 : null_.get(),
                     .stdout_fd = ends.out.get(),
                     .stderr_fd = ends.err.get(),
                     .cgroup_fd = cgroup.folder,
                     .exec_error = exec_error};
    auto child =
        spawn(std::move(setup), settings_.inherited, BindingMask(spec.binding), cgroup.procs);
    worker(spec.local_rank) = std::make_unique<Worker>(io_, std::move(child), exec_error);
  } catch (const std::exception& problem) {
    return problem.what();
  }
  worker(spec.local_rank)->on_exit([this, rank = spec.local_rank] { change_(rank); });
  return std::nullopt;
}

std::optional<WorkerExit> RankGroup::collect(int local_rank) {
  if (!worker(local_rank)) return std::nullopt;
  auto end = worker(local_rank)->reap();
  if (end) output_.drain(local_rank);
  return end;
}

pid_t RankGroup::pid_of(int local_rank) const {
  const auto& worker = workers_[static_cast<size_t>(local_rank)];
  return worker ? worker->pid() : 0;
}

bool RankGroup::running(int local_rank) const {
  const auto& worker = workers_[static_cast<size_t>(local_rank)];
  return worker && worker->running();
}

bool RankGroup::owns(pid_t pid) const {
  for (const auto& worker : workers_)
    if (worker && worker->running() && worker->pid() == pid) return true;
  return false;
}

void RankGroup::request_stop(int local_rank, Signal signal) {
  auto& rank = worker(local_rank);
  if (!rank) return;
  settings_.whole_group ? rank->signal_group(signal) : rank->signal_leader(signal);
  rank->signal_group(SIGCONT);
}

void RankGroup::signal_group(int local_rank, Signal signal) {
  if (auto& rank = worker(local_rank)) rank->signal_group(signal);
}

void RankGroup::signal_leaders(Signal signal) {
  for (auto& worker : workers_)
    if (worker) worker->signal_leader(signal);
}

void RankGroup::signal_groups(Signal signal) {
  for (auto& worker : workers_)
    if (worker) worker->signal_group(signal);
}

std::vector<int> RankGroup::newly_stopped() {
  std::vector<int> stopped;
  for (int rank = 0; rank < size(); ++rank)
    if (worker(rank) && worker(rank)->newly_stopped()) stopped.push_back(rank);
  return stopped;
}

std::vector<int> RankGroup::suspended() const {
  std::vector<int> suspended;
  for (int rank = 0; rank < size(); ++rank) {
    if (!running(rank)) continue;
    const auto stat =
        rendezvous::read_kernel_file(fmt::format("/proc/{}/stat", pid_of(rank))).value_or("");
    const auto name_end = stat.rfind(')');
    if (name_end == std::string::npos || name_end + 2 >= stat.size()) continue;
    const char state = stat[name_end + 2];
    if (state == 'T' || state == 't') suspended.push_back(rank);
  }
  return suspended;
}

void RankGroup::abandon(int local_rank) {
  worker(local_rank)->abandon();
}

std::vector<std::string> environment_of(const RankSpec& spec, char** ours) {
  std::map<std::string_view, const std::optional<std::string>*> changed;
  for (const auto& [name, value] : spec.env) changed[name] = &value;
  std::vector<std::string> out;
  for (char** entry = ours; *entry; ++entry) {
    const std::string_view pair = *entry;
    const auto name = pair.substr(0, pair.find('='));
    // In a job within a job, the outer one's would be taken for ours where we set none.
    const bool of_outer_job =
        name == rendezvous::variable::kWorkerSocket || name == rendezvous::variable::kReplacement;
    const bool is_secret = std::ranges::find(kSecretVariables, name) != kSecretVariables.end();
    if (!changed.contains(name) && !is_secret && !of_outer_job) out.emplace_back(pair);
  }
  for (const auto& [name, value] : changed)
    if (*value) out.push_back(fmt::format("{}={}", name, **value));
  return out;
}

}  // namespace mgpu::launcher
