#include "launcher/ranks/guard.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <exception>
#include <new>

#include "launcher/ranks/cgroup.hpp"
#include "launcher/ranks/process_tree.hpp"
#include "rendezvous/base/boot_clock.hpp"
#include "rendezvous/base/errors.hpp"
#include "rendezvous/processes/spawn.hpp"

namespace mgpu::launcher {
namespace {

constexpr int kRecheckMs = 200;  // how often to check whether the deadline was moved
constexpr auto kLongestKill = std::chrono::seconds(30);

struct Watch {
  const Guard::Job* job;
  int lifeline;
  const std::atomic<std::int64_t>* kill_by;
  const rendezvous::CodePages* code;
};

std::int64_t now_ns() {
  return rendezvous::BootClock::now().time_since_epoch().count();
}

// ps and pkill see this name, not the launcher's command line. The environment behind it goes too:
// the guard of a job within a job would carry the outer job's cookie, and be killed by the outer
// guard before it has done its work.
void rename_self(char** argv) {
  ::prctl(PR_SET_NAME, Guard::kName);
  if (!argv || !argv[0]) return;
  char* const begin = argv[0];
  char* end = begin;
  for (char** const words : {argv, environ})
    for (char** word = words; *word; ++word)
      if (*word == end || word == argv) end = *word + std::strlen(*word) + 1;
  std::memset(begin, 0, static_cast<size_t>(end - begin));
  std::strncpy(begin, Guard::kName, static_cast<size_t>(end - begin) - 1);
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

// A session that had a member when that was killed still was the rank's: so are the processes that
// the member started before.
void kill_process(const ProcessEntry& process, std::vector<RankSession>& sessions) {
  if (!signal_process(process, SIGKILL)) return;
  for (auto& session : sessions)
    if (session.has(process)) session.until = boot_ticks_now();
}

// Kills every process of the job until two scans in a row find none. Stops when still() is false.
template <class Reason>
void kill_until_empty(const Guard::Job& job, Reason still) {
  const auto deadline = std::chrono::steady_clock::now() + kLongestKill;
  for (const auto& cgroup : job.cgroups)
    if (!cgroup.empty()) JobCgroup::kill_cgroup(cgroup);
  auto sessions = job.sessions->all();
  for (auto& session : sessions) session.until = std::min(session.until, boot_ticks_now());
  for (int empty_scans = 0; empty_scans < 2 && std::chrono::steady_clock::now() < deadline;) {
    const auto carriers = processes_with_cookie(job.cookie);
    const auto found =
        members_and_descendants(running_processes(), sessions, {carriers.begin(), carriers.end()});
    if (!still()) return;
    for (const auto& process : found) kill_process(process, sessions);
    empty_scans = found.empty() ? empty_scans + 1 : 0;
    if (empty_scans < 2) pause_between_scans();
  }
}

// Receives a descriptor from the launcher. False: the launcher's end is closed.
bool receive(int lifeline, rendezvous::UniqueFd& held) {
  char byte = 0;
  iovec content{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &content;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const auto got = ::recvmsg(lifeline, &message, MSG_CMSG_CLOEXEC);
  if (got <= 0) return got < 0 && errno == EINTR;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (!header || header->cmsg_type != SCM_RIGHTS) return true;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  held.reset(fd);
  return true;
}

// How long to sleep; meanwhile the deadline may move later, but at most a second earlier.
int poll_timeout_ms(std::int64_t kill_by) {
  const std::int64_t left = (kill_by - now_ns()) / 1'000'000 + 1;
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 200));
}

// A cgroup of v1 is busy until its last process has been reaped.
void remove_when_reaped(const std::string& cgroup) {
  constexpr int kTries = 500;
  for (int tries = 0; tries < kTries && ::access(cgroup.c_str(), F_OK) == 0; ++tries) {
    if (tries > 0) pause_between_scans();
    JobCgroup::remove_cgroup(cgroup);
  }
}

void guard_main(void* argument) {
  const Watch& watch = *static_cast<Watch*>(argument);
  ::setsid();
  rename_self(watch.job->argv);
  close_all_but(watch.lifeline);
  if (::chdir("/") != 0) return;  // do not keep a file system busy; "/" always exists
  rendezvous::UniqueFd held;
  pollfd lifeline{watch.lifeline, POLLIN, 0};
  watch.code->unmap();
  std::int64_t handled_deadline = Guard::kNever.count();  // the deadline that was already handled
  while (true) {
    const auto kill_by = watch.kill_by->load(std::memory_order_relaxed);
    const bool timed = kill_by != Guard::kNever.count() && kill_by != handled_deadline;
    const int ready = ::poll(&lifeline, 1,
                             timed                              ? poll_timeout_ms(kill_by)
                             : kill_by == Guard::kNever.count() ? -1
                                                                : kRecheckMs);
    if (ready > 0 && !receive(watch.lifeline, held)) break;
    const auto due = [&] { return now_ns() >= watch.kill_by->load(std::memory_order_relaxed); };
    if (!timed || !due()) continue;
    kill_until_empty(*watch.job, due);
    handled_deadline = kill_by;
  }
  kill_until_empty(*watch.job, [] { return true; });
  for (const auto& cgroup : watch.job->cgroups)
    if (!cgroup.empty()) remove_when_reaped(cgroup);
}

}  // namespace

Guard::Guard(Job job) : job_(std::move(job)) {
  void* const memory =
      ::mmap(nullptr, sizeof *kill_by_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) rendezvous::throw_errno("cannot share memory with the guard");
  kill_by_ = new (memory) std::atomic<std::int64_t>(kNever.count());
  start();
}

Guard::~Guard() {
  dismiss();
  ::munmap(kill_by_, sizeof *kill_by_);
}

void Guard::start() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    rendezvous::throw_errno("cannot create a socket pair for the guard");
  rendezvous::UniqueFd read_end(ends[0]);
  lifeline_.reset(ends[1]);
  Watch watch{&job_, read_end.get(), kill_by_, &code_};
  process_ = rendezvous::ChildProcess(rendezvous::fork_child(&guard_main, &watch));
  send_held_socket();
}

void Guard::hold(int socket) {
  held_.reset(::fcntl(socket, F_DUPFD_CLOEXEC, 3));
  send_held_socket();
}

void Guard::kill_by(Nanoseconds when) {
  const bool asleep = kill_by_->exchange(when.count(), std::memory_order_relaxed) == kNever.count();
  const char wake = 0;
  if (asleep && when != kNever) ::send(lifeline_.get(), &wake, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Guard::send_held_socket() {
  if (!held_) return;
  char byte = 0;
  iovec content{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &content;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = held_.get();
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  ::sendmsg(lifeline_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Guard::dismiss() {
  process_ = {};
}

bool Guard::restart_if_dead() {
  if (process_.running() && !process_.reap()) return true;
  process_ = {};
  try {
    start();
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

}  // namespace mgpu::launcher
