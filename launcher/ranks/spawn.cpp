#include "launcher/ranks/spawn.hpp"

#include <fcntl.h>
#include <linux/sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/exit_status.hpp"

// Boost.Process is not used: after a failed exec it leaves a zombie and runs our exit handlers in
// the child; it waits for every exec in turn and cannot start a child in a cgroup. See
// docs/decisions/0001-own-spawn.md.

namespace mgpu::launcher {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> out;
  out.reserve(words.size() + 1);
  for (const auto& word : words) out.push_back(const_cast<char*>(word.c_str()));
  out.push_back(nullptr);
  return out;
}

// Like fork, but starts the child in a cgroup and returns a pidfd. If clone3 is refused (older
// sandboxes return ENOSYS or EPERM) or the cgroup no longer exists, uses a plain fork.
pid_t clone_child(int cgroup_fd, int* pidfd) {
  clone_args args{};
  args.flags = CLONE_PIDFD;
  args.pidfd = reinterpret_cast<std::uint64_t>(pidfd);
  args.exit_signal = SIGCHLD;
  if (cgroup_fd >= 0) {
    args.flags |= CLONE_INTO_CGROUP;
    args.cgroup = static_cast<std::uint64_t>(cgroup_fd);
  }
  const long pid = ::syscall(SYS_clone3, &args, sizeof args);
  if (pid >= 0 || errno == EAGAIN || errno == ENOMEM) return static_cast<pid_t>(pid);
  const pid_t forked = ::fork();
  if (forked > 0) *pidfd = static_cast<int>(::syscall(SYS_pidfd_open, forked, 0));
  return forked;
}

void reset_signals(const Inherited& inherited) {
  // Our handlers write to descriptors that the child still shares with us.
  struct sigaction fresh{};
  fresh.sa_handler = SIG_DFL;
  struct sigaction now{};
  for (int signo = 1; signo < NSIG; ++signo)
    if (::sigaction(signo, nullptr, &now) == 0 && now.sa_handler != SIG_DFL &&
        now.sa_handler != SIG_IGN)
      ::sigaction(signo, &fresh, nullptr);
  if (!inherited.sigpipe_ignored) ::sigaction(SIGPIPE, &fresh, nullptr);
}

// dup2 onto itself would keep close-on-exec.
bool place(int fd, int target) {
  if (fd < 0) return true;
  if (fd == target) return ::fcntl(fd, F_SETFD, 0) == 0;
  return ::dup2(fd, target) >= 0;
}

[[noreturn]] void give_up(const ChildSetup& setup, int error) {
  if (setup.exec_error) *setup.exec_error = error;
  ::_exit(exit_status::kCannotExecute);
}

[[noreturn]] void run_child(const ChildSetup& setup, const Inherited& inherited, char* const* argv,
                            char* const* envp, pid_t parent) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(exit_status::kCannotExecute);  // the parent died before prctl
  reset_signals(inherited);
  if (!place(setup.stdin_fd, STDIN_FILENO) || !place(setup.stdout_fd, STDOUT_FILENO) ||
      !place(setup.stderr_fd, STDERR_FILENO))
    give_up(setup, errno);
  ::setrlimit(RLIMIT_NOFILE, &inherited.nofile);
  if (!setup.workdir.empty() && ::chdir(setup.workdir.c_str()) != 0) give_up(setup, errno);
  if (const int refused = setup.binding.apply(); refused != 0) give_up(setup, refused);
  ::sigprocmask(SIG_SETMASK, &inherited.mask, nullptr);
  ::execve(argv[0], argv, envp);
  give_up(setup, errno);
}

// No signal may reach the child while it still has our handlers.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

Spawned spawn(const ChildSetup& setup, const Inherited& inherited) {
  const auto argv = pointers(setup.argv);
  const auto envp = pointers(setup.envp);
  const pid_t parent = ::getpid();
  int pidfd = -1;
  const SignalsBlocked blocked;
  const pid_t pid = clone_child(setup.cgroup_fd, &pidfd);
  if (pid < 0) rendezvous::throw_errno("cannot start a process for " + setup.argv[0]);
  if (pid == 0) run_child(setup, inherited, argv.data(), envp.data(), parent);
  Spawned child{pid, rendezvous::UniqueFd(pidfd)};
  if (pidfd < 0) rendezvous::throw_errno("cannot watch process " + std::to_string(pid));
  return child;
}

Spawned fork_child(void (*body)(void*), void* argument) {
  int pidfd = -1;
  const SignalsBlocked blocked;  // they stay blocked in the child
  const pid_t pid = clone_child(-1, &pidfd);
  if (pid < 0) rendezvous::throw_errno("cannot fork");
  if (pid == 0) {
    body(argument);
    ::_exit(0);
  }
  return {pid, rendezvous::UniqueFd(pidfd)};
}

}  // namespace mgpu::launcher
