#include "runtime/train/stop_signals.hpp"

#include <signal.h>

#include <atomic>

namespace mgpu::train {
namespace {

std::atomic<int> stop_signal{0};
std::atomic<bool> save_asked{false};
static_assert(std::atomic<int>::is_always_lock_free);

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};

void on_signal(int signo) {
  if (signo == SIGUSR1) {
    save_asked = true;
  } else {
    stop_signal = signo;
    if (signo == SIGINT) ::signal(SIGINT, SIG_DFL);
  }
}

}  // namespace

StopSignals::StopSignals() {
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int signo : kSignals) ::sigaction(signo, &action, nullptr);
}

StopSignals::~StopSignals() {
  for (const int signo : kSignals) ::signal(signo, SIG_DFL);
}

Wishes StopSignals::take() {
  return {save_asked.exchange(false), stop_signal != 0};
}

int StopSignals::signal() const {
  return stop_signal;
}

}  // namespace mgpu::train
