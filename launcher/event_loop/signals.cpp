// The part of the event loop that handles signals to this process.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "launcher/event_loop/event_loop.hpp"

namespace mgpu::launcher {

void EventLoop::watch_signals() {
  std::vector<int> wanted = options_.signals_to_handle;
  for (const int signo : {SIGUSR1, SIGUSR2, SIGTSTP, SIGWINCH, SIGCHLD}) wanted.push_back(signo);
  for (const int signo : wanted)
    if (!inherited_.ignores(signo) || signo == SIGCHLD) signals_.add(signo);
  await_signal();
}

void EventLoop::await_signal() {
  signals_.async_wait([this](const boost::system::error_code& failed, int signo) {
    if (failed) return;
    on_signal(signo);
    await_signal();
  });
}

void EventLoop::on_signal(int signo) {
  const auto& stops = options_.signals_to_handle;
  if (signo == SIGCHLD) return child_changed();
  if (std::find(stops.begin(), stops.end(), signo) != stops.end()) {
    // The job has finished and only output to a slow reader is pending; do not wait for it.
    if (supervisor_.done()) return io_.stop();
    if (signo == SIGINT && ++interrupts_ == 2) return feed(KillRequested{});
    return on_stop_signal(signo);
  }
  if (signo == SIGTSTP) return suspend();
  if (signo == SIGWINCH) output_.resize_terminals();
  ranks_.signal_leaders(signo);
}

void EventLoop::on_stop_signal(int signo) {
  // The ranks of the other nodes get the signal at the same time, not after ours have exited.
  if (session_) session_->report_stop(signo);
  feed(StopRequested{signo});
}

// The ranks are in their own sessions, where the terminal's ^Z does not reach them and the kernel
// discards SIGTSTP, so they get SIGSTOP. Execution continues here after a SIGCONT.
void EventLoop::suspend() {
  for (auto* timer : {&grace_, &delay_, &unkillable_}) timer->pause();
  ranks_.signal_groups(SIGSTOP);
  ::kill(::getpid(), SIGSTOP);
  ranks_.signal_groups(SIGCONT);
  ranks_.newly_stopped();  // caused by this function, not to be reported
  for (auto* timer : {&grace_, &delay_, &unkillable_}) timer->resume();
}

}  // namespace mgpu::launcher
