#include "launcher/ranks/inherited.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace mgpu::launcher {
namespace {

// If this process was started without 0, 1 or 2, no other descriptor may take their place.
void fill_missing_stdio() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDWR);
  if (fd > STDERR_FILENO) ::close(fd);
}

}  // namespace

Inherited record_and_adjust_process() {
  fill_missing_stdio();
  Inherited inherited;
  ::getrlimit(RLIMIT_NOFILE, &inherited.nofile);
  rlimit raised = inherited.nofile;
  raised.rlim_cur = raised.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &raised);

  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, &inherited.mask);

  sigemptyset(&inherited.ignored);
  for (int signo = 1; signo < SIGRTMIN; ++signo) {
    struct sigaction action{};
    if (::sigaction(signo, nullptr, &action) == 0 && action.sa_handler == SIG_IGN)
      sigaddset(&inherited.ignored, signo);
  }
  inherited.sigpipe_ignored = inherited.ignores(SIGPIPE);
  ::signal(SIGPIPE, SIG_IGN);
  // With SIGCHLD ignored the kernel would reap children before their exit status can be read.
  ::signal(SIGCHLD, SIG_DFL);
  return inherited;
}

}  // namespace mgpu::launcher
