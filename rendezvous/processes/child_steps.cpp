#include "rendezvous/processes/child_steps.hpp"

#include <sys/syscall.h>
#include <unistd.h>

namespace mgpu::rendezvous {

void reset_signals(const sigset_t& stay_ignored) {
  struct sigaction fresh{};
  fresh.sa_handler = SIG_DFL;
  struct sigaction now{};
  for (int signo = 1; signo < NSIG; ++signo) {
    if (::sigaction(signo, nullptr, &now) != 0 || now.sa_handler == SIG_DFL) continue;
    if (now.sa_handler == SIG_IGN && ::sigismember(&stay_ignored, signo) == 1) continue;
    ::sigaction(signo, &fresh, nullptr);
  }
}

void close_from(int first) {
  if (::syscall(SYS_close_range, first, ~0U, 0) == 0) return;
  const long most = ::sysconf(_SC_OPEN_MAX);  // kernels before 5.9
  for (int fd = first; fd < (most < 0 ? 1024 : most); ++fd) ::close(fd);
}

}  // namespace mgpu::rendezvous
