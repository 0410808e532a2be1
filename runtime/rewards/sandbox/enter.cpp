#include "runtime/rewards/sandbox/enter.hpp"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <initializer_list>

#include "rendezvous/base/exit_status.hpp"
#include "rendezvous/processes/child_steps.hpp"
#include "runtime/rewards/sandbox/limits.hpp"
#include "runtime/rewards/sandbox/mounts.hpp"

namespace mgpu::rewards {
namespace {

constexpr int kReport = 3;  // the descriptor of the report, behind the three of the program
constexpr int kReadAll = CAP_DAC_READ_SEARCH;

[[noreturn]] void report_failure(const SandboxEntry& entry, SandboxStep step, int item = -1) {
  const SandboxFailure failure{step, errno, item};
  if (::write(entry.report, &failure, sizeof failure) < 0) ::_exit(exit_status::kCannotExecute);
  ::_exit(exit_status::kCannotExecute);
}

void start_without_signals() {
  sigset_t none;
  sigemptyset(&none);
  rendezvous::reset_signals(none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

bool wait_for_go(int go) {
  char byte = 0;
  ssize_t got = 0;
  while ((got = ::read(go, &byte, 1)) < 0 && errno == EINTR) {
  }
  if (got == 0) errno = ECANCELED;
  return got == 1;
}

// Away from the low numbers, which get the program's own descriptors at the end.
bool move_up(int& fd) {
  fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 64);
  return fd >= 0;
}

// Memory runs out: the kernel is to kill the programs of a sandbox before the trainer.
void be_killed_first() {
  const int fd = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  if (::write(fd, "1000", 4) != 4) errno = 0;  // then the kernel chooses as for any process
  ::close(fd);
}

bool set_capabilities(std::uint32_t low) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct sets[2] = {{low, low, low}, {0, 0, 0}};
  return ::syscall(SYS_capset, &header, sets) == 0;
}

bool is_pipe(int fd) {
  struct stat status{};
  return ::fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode);
}

// Raw system calls: the C library's functions would change the user of all threads that it has
// counted before the fork.
bool become_nobody(const SandboxEntry& entry) {
  for (const int fd : {entry.out, entry.err})  // so that it can open /dev/stdout and /dev/stderr
    if (is_pipe(fd) && ::fchown(fd, kNobody, kNobody) != 0) return false;
  return ::syscall(SYS_setgroups, 0, nullptr) == 0 && ::prctl(PR_SET_KEEPCAPS, 1) == 0 &&
         ::syscall(SYS_setresgid, kNobody, kNobody, kNobody) == 0 &&
         ::syscall(SYS_setresuid, kNobody, kNobody, kNobody) == 0;
}

bool drop_bounding_set(bool keeps_read_all) {
  for (int capability = 0;; ++capability) {
    if (capability == kReadAll && keeps_read_all) continue;
    if (::prctl(PR_CAPBSET_DROP, capability) != 0)
      return errno == EINVAL && capability > kReadAll;  // behind the last one
  }
}

// Root reads the files of all users, and so does its reward program: else a file below /root could
// not be a reward. All other capabilities go.
bool keep_reading_only(const SandboxEntry& entry) {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  if (!entry.maps_all_users)
    return ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) == 0 && set_capabilities(0);
  return set_capabilities(1U << kReadAll) &&
         ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, kReadAll, 0, 0) == 0;
}

// The signal is lost when the user changes, so this comes after that.
bool tie_to_trainer(int go) {
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return false;
  pollfd ended{go, 0, 0};
  if (::poll(&ended, 1, 0) == 0) return true;
  errno = ECANCELED;
  return false;
}

bool limit_to(int resource, rlim_t most, rlim_t soft) {
  rlimit limit{};
  const auto which = static_cast<decltype(RLIMIT_CORE)>(resource);
  if (::getrlimit(which, &limit) != 0) return false;
  limit.rlim_max = limit.rlim_max < most ? limit.rlim_max : most;
  limit.rlim_cur = soft < limit.rlim_max ? soft : limit.rlim_max;
  return ::setrlimit(which, &limit) == 0;
}

bool limit_resources() {
  return limit_to(RLIMIT_CORE, 0, 0) && limit_to(RLIMIT_FSIZE, kSandboxFile, kSandboxFile) &&
         limit_to(RLIMIT_NOFILE, kSandboxDescriptors, kSandboxDescriptors) &&
         limit_to(RLIMIT_AS, kSandboxMemory, kSandboxMemory);
}

// The kernel does not apply this limit to root, whatever namespace root is in. So it is tried: with
// a limit of one process, a second one must be refused.
bool limit_processes() {
  if (!limit_to(RLIMIT_NPROC, kSandboxProcesses, 1)) return false;
  const auto second = ::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (second == 0) ::_exit(0);
  if (second > 0) {
    while (::waitpid(static_cast<pid_t>(second), nullptr, 0) < 0 && errno == EINTR) {
    }
    errno = ENOTSUP;
    return false;
  }
  return errno == EAGAIN && limit_to(RLIMIT_NPROC, kSandboxProcesses, kSandboxProcesses);
}

bool place_descriptors(SandboxEntry& entry) {
  if (::dup2(entry.in, STDIN_FILENO) < 0 || ::dup2(entry.out, STDOUT_FILENO) < 0 ||
      ::dup2(entry.err, STDERR_FILENO) < 0 || ::dup3(entry.report, kReport, O_CLOEXEC) < 0)
    return false;
  entry.report = kReport;
  rendezvous::close_from(kReport + 1);
  return true;
}

}  // namespace

void enter_sandbox(const SandboxEntry& prepared) {
  using enum SandboxStep;
  SandboxEntry entry = prepared;
  const auto require = [&](bool done, SandboxStep step) {
    if (!done) report_failure(entry, step);
  };
  start_without_signals();
  if (!move_up(entry.report)) ::_exit(exit_status::kCannotExecute);
  require(move_up(entry.in) && move_up(entry.out) && move_up(entry.err) && move_up(entry.go),
          descriptors);
  require(wait_for_go(entry.go), map_users);
  require(::setsid() >= 0, session);  // without the trainer's terminal
  be_killed_first();

  int readable[kMostReadable];
  require(make_mounts_private(), private_mounts);
  for (std::size_t i = 0; i < entry.readable_count; ++i)
    if (!open_path(entry.readable[i], readable[i]))
      report_failure(entry, open_readable, static_cast<int>(i));
  require(make_read_only(entry.scratch, entry.scratch_size), read_only);
  require(mount_empty("/tmp", kSandboxTmp), empty_tmp);
  require(mount_small_dev(kSandboxShm), small_dev);
  for (std::size_t i = 0; i < entry.readable_count; ++i)
    if (!show_path(readable[i], entry.readable[i]))
      report_failure(entry, show_readable, static_cast<int>(i));
  require(seal_dev(), small_dev);
  require(mount_own_proc(), own_proc);
  require(hide_kernel_files(), hide_kernel);

  require(drop_bounding_set(entry.maps_all_users), drop_capabilities);
  if (entry.maps_all_users) require(become_nobody(entry), unprivileged_user);
  require(keep_reading_only(entry), drop_capabilities);
  require(::chdir(entry.folder) == 0, working_folder);
  require(tie_to_trainer(entry.go), die_with_trainer);
  require(place_descriptors(entry), descriptors);
  require(limit_resources(), limits);
  require(limit_processes(), process_limit);
  require(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &entry.filter) == 0, filter);
  ::execve(entry.argv[0], entry.argv, entry.environment);
  report_failure(entry, run_shell);
}

}  // namespace mgpu::rewards
