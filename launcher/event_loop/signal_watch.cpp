#include "launcher/event_loop/signal_watch.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

namespace mgpu::launcher {

SignalWatch::SignalWatch(boost::asio::io_context& io, std::vector<int> stop_signals,
                         const Inherited& inherited, Callbacks callbacks)
    : signals_(io), stop_signals_(std::move(stop_signals)), callbacks_(std::move(callbacks)) {
  std::vector<int> wanted = stop_signals_;
  for (const int signo : {SIGUSR1, SIGUSR2, SIGTSTP, SIGWINCH, SIGCHLD}) wanted.push_back(signo);
  for (const int signo : wanted)
    if (!inherited.ignores(signo) || signo == SIGCHLD) signals_.add(signo);
  await_signal();
}

void SignalWatch::await_signal() {
  signals_.async_wait([this](const boost::system::error_code& failed, int signo) {
    if (failed) return;
    on_signal(signo);
    await_signal();
  });
}

void SignalWatch::on_signal(int signo) {
  if (signo == SIGCHLD) return callbacks_.child_changed();
  if (is_stop(signo)) {
    if (signo == SIGINT && ++interrupts_ == 2) return callbacks_.kill_requested();
    return callbacks_.stop_requested(signo);
  }
  if (signo != SIGTSTP) return callbacks_.passed_on(signo);
  callbacks_.suspending();
  ::kill(::getpid(), SIGSTOP);  // execution continues here after a SIGCONT
  callbacks_.resumed();
}

bool SignalWatch::is_stop(int signo) const {
  return std::find(stop_signals_.begin(), stop_signals_.end(), signo) != stop_signals_.end();
}

}  // namespace mgpu::launcher
