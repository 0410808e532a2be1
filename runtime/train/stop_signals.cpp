#include "runtime/train/stop_signals.hpp"

#include <signal.h>

#include <atomic>

namespace mgpu::train {
namespace {

std::atomic<int> stop_signal{0};
std::atomic<bool> save_requested{false};
static_assert(std::atomic<int>::is_always_lock_free);

constexpr int kStopSignals[] = {SIGTERM, SIGINT, SIGHUP};

void on_signal(int signo) {
  if (signo == SIGUSR1) {
    save_requested = true;
  } else {
    stop_signal = signo;
    if (signo == SIGINT) ::signal(SIGINT, SIG_DFL);
  }
}

void install_handler(int signo) {
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  ::sigaction(signo, &action, nullptr);
}

}  // namespace

StopSignals::StopSignals() {
  stop_signal = 0;
  save_requested = false;
  install_handler(SIGUSR1);
}

StopSignals::~StopSignals() {
  for (const int signo : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
    struct sigaction now{};
    ::sigaction(signo, nullptr, &now);
    if (now.sa_handler == on_signal) ::signal(signo, SIG_DFL);
  }
}

void StopSignals::defer() {
  for (const int signo : kStopSignals) {
    struct sigaction now{};
    ::sigaction(signo, nullptr, &now);
    if (now.sa_handler != SIG_IGN) install_handler(signo);
  }
}

Requests StopSignals::take() {
  return {save_requested.exchange(false), stop_signal != 0};
}

int StopSignals::signal() const {
  return stop_signal;
}

}  // namespace mgpu::train
