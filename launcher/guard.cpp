#include "launcher/guard.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>

#include "launcher/cgroup.hpp"
#include "launcher/process_tree.hpp"
#include "launcher/spawn.hpp"
#include "rendezvous/base/errors.hpp"

namespace mgpu::launcher {
namespace {

constexpr const char* kName = "mg-guard";
constexpr auto kLongestHunt = std::chrono::seconds(30);

struct Watch {
  const Guard::Job* job;
  int lifeline;
};

// ps and pkill see this name, not the launcher's command line.
void rename_self(char** argv) {
  ::prctl(PR_SET_NAME, kName);
  if (!argv || !argv[0]) return;
  char* const begin = argv[0];
  char* end = begin;
  for (char** word = argv; *word; ++word)
    if (*word == end || word == argv) end = *word + std::strlen(*word) + 1;
  std::memset(begin, 0, static_cast<size_t>(end - begin));
  std::strncpy(begin, kName, static_cast<size_t>(end - begin) - 1);
}

void close_all_but(int kept) {
  const auto k = static_cast<unsigned>(kept);
  if (k > 0) ::close_range(0, k - 1, 0);
  ::close_range(k + 1, ~0u, 0);
}

void pause_between_scans() {
  const timespec pause{0, 2'000'000};
  ::nanosleep(&pause, nullptr);
}

// Everything that the job created, killed until nothing shows up twice in a row.
void hunt(const Guard::Job& job) {
  const auto deadline = std::chrono::steady_clock::now() + kLongestHunt;
  if (!job.cgroup.empty()) JobCgroup::kill_cgroup(job.cgroup);
  for (int empty_scans = 0; empty_scans < 2 && std::chrono::steady_clock::now() < deadline;) {
    const auto found = processes_with_cookie(job.cookie);
    for (const pid_t pid : found) signal_carrier(pid, job.cookie, SIGKILL);
    empty_scans = found.empty() ? empty_scans + 1 : 0;
    if (empty_scans < 2) pause_between_scans();
  }
  if (!job.cgroup.empty()) JobCgroup::remove_cgroup(job.cgroup);
}

void keep_watch(void* argument) {
  const Watch& watch = *static_cast<Watch*>(argument);
  ::setsid();
  rename_self(watch.job->argv);
  close_all_but(watch.lifeline);
  if (::chdir("/") != 0) return;  // hold no file system busy; "/" is always there
  char byte;
  while (::read(watch.lifeline, &byte, 1) < 0 && errno == EINTR) {
  }
  hunt(*watch.job);
}

}  // namespace

Guard::Guard(Job job) : job_(std::move(job)) {
  start();
}

void Guard::start() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) rendezvous::throw_errno("cannot make the guard's pipe");
  rendezvous::UniqueFd read_end(ends[0]);
  lifeline_.reset(ends[1]);
  Watch watch{&job_, read_end.get()};
  auto child = fork_child(&keep_watch, &watch);
  pid_ = child.pid;
  pidfd_ = std::move(child.pidfd);
}

void Guard::dismiss() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);  // our child and not yet reaped: the pid is its own
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

bool Guard::revive() {
  if (pid_ < 0 || ::waitpid(pid_, nullptr, WNOHANG) != pid_) return false;
  start();
  return true;
}

}  // namespace mgpu::launcher
