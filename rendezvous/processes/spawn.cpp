#include "rendezvous/processes/spawn.hpp"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <new>
#include <system_error>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/exit_status.hpp"
#include "rendezvous/processes/child_steps.hpp"

namespace mgpu::rendezvous {
namespace {

// A sanitizer's run-time library keeps records of memory and descriptors. They would become wrong
// if a child shared them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kShareMemory = 0;
#else
constexpr int kShareMemory = CLONE_VM;
#endif

constexpr std::size_t kStack = 128 << 10;  // more than execvpe needs for paths
constexpr std::size_t kGuardPage = 4096;

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

// The child enters its namespaces with the system call that makes it, as the first process there.
// clone, not clone3: containers that allow namespaces look at its flags.
pid_t clone_into_namespaces(int namespaces, int* pidfd) {
  return static_cast<pid_t>(
      ::syscall(SYS_clone, SIGCHLD | CLONE_PIDFD | namespaces, nullptr, pidfd, nullptr, nullptr));
}

// Why a child could not run its program. In memory shared with the child.
struct StartFailure {
  int error = 0;
  bool in_workdir = false;
};

// What the new process works with.
struct Prepared {
  explicit Prepared(const ChildSetup& given)
      : setup(given), argv(pointers(given.argv)), envp(pointers(given.envp)) {}

  const ChildSetup& setup;
  std::vector<char*> argv;
  std::vector<char*> envp;
  pid_t parent = ::getpid();
  volatile StartFailure* failure = nullptr;
};

// dup2 onto itself would keep close-on-exec.
bool place(int fd, int target) {
  if (fd < 0) return true;
  if (fd == target) return ::fcntl(fd, F_SETFD, 0) == 0;
  return ::dup2(fd, target) >= 0;
}

int give_up(const Prepared& prepared, int error, bool in_workdir = false) {
  if (prepared.setup.exec_error) *prepared.setup.exec_error = error;
  if (prepared.failure) {
    prepared.failure->error = error;
    prepared.failure->in_workdir = in_workdir;
  }
  return exit_status::kCannotExecute;
}

// Runs in the child. Returns, with its exit status, only if it could not execute the program.
int run_child(const Prepared& prepared) {
  const ChildSetup& setup = prepared.setup;
  if (setup.leads == ChildSetup::Leads::session)
    ::setsid();
  else
    ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != prepared.parent)
    return exit_status::kCannotExecute;  // the parent died before prctl
  reset_signals(setup.stay_ignored);     // handlers write to descriptors that we still share
  if (!place(setup.stdin_fd, STDIN_FILENO) || !place(setup.stdout_fd, STDOUT_FILENO) ||
      !place(setup.stderr_fd, STDERR_FILENO))
    return give_up(prepared, errno);
  if (!setup.workdir.empty() && ::chdir(setup.workdir.c_str()) != 0)
    return give_up(prepared, errno, true);
  if (setup.only_stdio) close_from(STDERR_FILENO + 1);
  if (setup.last_step.run)
    if (const int refused = setup.last_step.run(setup.last_step.argument); refused != 0)
      return give_up(prepared, refused);
  ::sigprocmask(SIG_SETMASK, &setup.blocked, nullptr);
  if (setup.search_path)
    ::execvpe(prepared.argv[0], prepared.argv.data(), prepared.envp.data());
  else
    ::execve(prepared.argv[0], prepared.argv.data(), prepared.envp.data());
  return give_up(prepared, errno);
}

// No signal may reach the child while it still has our handlers.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

// The stack of a child that shares our memory, and its StartFailure. Below it is a page that
// cannot be written.
class BorrowedMemory {
 public:
  explicit BorrowedMemory(std::size_t words)
      : size_(kGuardPage +
              (kStack + words * sizeof(char*) + kGuardPage - 1) / kGuardPage * kGuardPage) {
    void* const memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) throw_errno("cannot allocate the stack of a child");
    begin_ = static_cast<std::byte*>(memory);
    ::mprotect(begin_, kGuardPage, PROT_NONE);
    failure_ = new (begin_ + size_ - kTop) StartFailure;
  }
  ~BorrowedMemory() { ::munmap(begin_, size_); }
  BorrowedMemory(const BorrowedMemory&) = delete;
  BorrowedMemory& operator=(const BorrowedMemory&) = delete;

  void* stack_top() const { return begin_ + size_ - kTop; }
  volatile StartFailure* failure() const { return failure_; }

 private:
  static constexpr std::size_t kTop = 64;  // stacks are aligned
  static_assert(sizeof(StartFailure) <= kTop);

  std::size_t size_;
  std::byte* begin_ = nullptr;
  StartFailure* failure_ = nullptr;
};

int run_confirmed(void* prepared) {
  return run_child(*static_cast<const Prepared*>(prepared));
}

Spawned watched(pid_t pid, int pidfd) {
  Spawned child{pid, UniqueFd(pidfd)};
  if (pidfd < 0) throw_errno("cannot watch process " + std::to_string(pid));
  return child;
}

}  // namespace

Spawned spawn(const ChildSetup& setup) {
  const Prepared prepared(setup);
  int pidfd = -1;
  const SignalsBlocked blocked;
  const pid_t pid = clone_child(setup.cgroup_fd, &pidfd);
  if (pid < 0) throw_errno("cannot start a process for " + setup.argv[0]);
  if (pid == 0) ::_exit(run_child(prepared));
  return watched(pid, pidfd);
}

Spawned spawn_and_confirm(const ChildSetup& setup) {
  const BorrowedMemory memory(setup.argv.size());
  Prepared prepared(setup);
  prepared.failure = memory.failure();
  int pidfd = -1;
  const SignalsBlocked blocked;
  const pid_t pid = ::clone(&run_confirmed, memory.stack_top(),
                            kShareMemory | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, &prepared, &pidfd);
  if (pid < 0) throw_errno("cannot start a process for " + setup.argv[0]);
  if (const int error = memory.failure()->error; error != 0) {
    const UniqueFd unused(pidfd);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    if (memory.failure()->in_workdir) throw_errno("cannot enter " + setup.workdir, error);
    throw_errno("cannot run " + setup.argv[0], error);
  }
  return watched(pid, pidfd);
}

Spawned fork_child(void (*body)(void*), void* argument, int namespaces) {
  int pidfd = -1;
  const SignalsBlocked blocked;
  // Only fork() leaves the C library in a state in which the child may allocate memory, whatever
  // another thread was doing.
  const pid_t pid = namespaces != 0 ? clone_into_namespaces(namespaces, &pidfd) : ::fork();
  if (pid < 0) throw std::system_error(errno, std::generic_category(), "cannot fork");
  if (pid == 0) {
    body(argument);
    ::_exit(0);
  }
  if (pidfd < 0) pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  return {pid, UniqueFd(pidfd)};
}

}  // namespace mgpu::rendezvous
