#include "launcher/event_loop/signal_watch.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

namespace mgpu::launcher {

SignalWatch::SignalWatch(boost::asio::io_context& io, const std::vector<int>& stop_signals,
                         const Inherited& inherited, Callbacks callbacks)
    : signals_(io), callbacks_(std::move(callbacks)) {
  for (const int signo : stop_signals) stop_signals_.push_back(Signal::numbered(signo));
  std::vector<Signal> wanted = stop_signals_;
  wanted.insert(wanted.end(), {SIGUSR1, SIGUSR2, SIGTSTP, SIGWINCH, SIGCHLD});
  for (const Signal signal : wanted)
    if (!inherited.ignores(signal) || signal == SIGCHLD) signals_.add(signal.number());
  await_signal();
}

void SignalWatch::await_signal() {
  signals_.async_wait([this](const boost::system::error_code& failed, int signo) {
    if (failed) return;
    on_signal(Signal::numbered(signo));
    await_signal();
  });
}

void SignalWatch::on_signal(Signal signal) {
  if (signal == SIGCHLD) return callbacks_.child_changed();
  if (is_stop(signal)) {
    if (signal == SIGINT && ++interrupts_ == 2) return callbacks_.kill_requested();
    return callbacks_.stop_requested(signal);
  }
  if (signal != SIGTSTP) return callbacks_.passed_on(signal);
  if (std::exchange(suspending_, true)) return;
  callbacks_.suspending([this] {
    ::kill(::getpid(), SIGSTOP);  // execution continues here after a SIGCONT
    suspending_ = false;
    callbacks_.resumed();
  });
}

bool SignalWatch::is_stop(Signal signal) const {
  return std::find(stop_signals_.begin(), stop_signals_.end(), signal) != stop_signals_.end();
}

}  // namespace mgpu::launcher
