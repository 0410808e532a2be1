#include "runtime/train/stop_signals.hpp"

#include <signal.h>

#include "tests/support/catch.hpp"

using mgpu::train::StopSignals;

namespace {

// The signal's current handler.
auto disposition(int signo) {
  struct sigaction now{};
  ::sigaction(signo, nullptr, &now);
  return now.sa_handler;
}

// Resets the signals to their defaults: Catch installs handlers of its own.
void begin_plain() {
  for (const int signo : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) ::signal(signo, SIG_DFL);
}

}  // namespace

TEST_CASE("before training stop signals end the process and a save request is kept",
          "[stop_signals]") {
  begin_plain();
  StopSignals signals;
  for (const int signo : {SIGTERM, SIGINT, SIGHUP}) CHECK(disposition(signo) == SIG_DFL);
  ::raise(SIGUSR1);
  signals.defer();
  const auto requests = signals.take();
  CHECK(requests.save);
  CHECK_FALSE(requests.stop);
  CHECK_FALSE(signals.take().save);  // a save request is returned once
}

TEST_CASE("in training a stop signal becomes a request that persists", "[stop_signals]") {
  begin_plain();
  const int signo = GENERATE(SIGTERM, SIGINT, SIGHUP);
  {
    StopSignals signals;
    signals.defer();
    ::raise(signo);
    CHECK(signals.take().stop);
    CHECK(signals.take().stop);
    CHECK(signals.signal() == signo);
    CHECK((disposition(SIGINT) == SIG_DFL) ==
          (signo == SIGINT));  // a second SIGINT ends the process
  }
  CHECK(disposition(signo) == SIG_DFL);
  CHECK_FALSE(StopSignals().take().stop);
}

TEST_CASE("ignored signals stay ignored", "[stop_signals]") {
  begin_plain();
  ::signal(SIGHUP, SIG_IGN);
  {
    StopSignals signals;
    signals.defer();
    CHECK(disposition(SIGHUP) == SIG_IGN);
    CHECK(disposition(SIGTERM) != SIG_DFL);
  }
  CHECK(disposition(SIGHUP) == SIG_IGN);
  ::signal(SIGHUP, SIG_DFL);
}
