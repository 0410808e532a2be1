#include "runtime/train/stop_signals.hpp"

#include <signal.h>

#include "tests/support/catch.hpp"

using mgpu::train::StopSignals;

namespace {

// What a signal does now.
auto disposition(int signo) {
  struct sigaction now{};
  ::sigaction(signo, nullptr, &now);
  return now.sa_handler;
}

// As a program begins; Catch has handlers of its own.
void begin_plain() {
  for (const int signo : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) ::signal(signo, SIG_DFL);
}

}  // namespace

TEST_CASE("before training a signal to end ends, and a wish to save is kept", "[stop_signals]") {
  begin_plain();
  StopSignals signals;
  for (const int signo : {SIGTERM, SIGINT, SIGHUP}) CHECK(disposition(signo) == SIG_DFL);
  ::raise(SIGUSR1);
  signals.defer();
  const auto requests = signals.take();
  CHECK(requests.save);
  CHECK_FALSE(requests.stop);
  CHECK_FALSE(signals.take().save);  // once is enough
}

TEST_CASE("in training a signal to end is a wish that stays", "[stop_signals]") {
  begin_plain();
  const int signo = GENERATE(SIGTERM, SIGINT, SIGHUP);
  {
    StopSignals signals;
    signals.defer();
    ::raise(signo);
    CHECK(signals.take().stop);
    CHECK(signals.take().stop);
    CHECK(signals.signal() == signo);
    CHECK((disposition(SIGINT) == SIG_DFL) == (signo == SIGINT));  // the second ends at once
  }
  CHECK(disposition(signo) == SIG_DFL);
  CHECK_FALSE(StopSignals().take().stop);
}

TEST_CASE("what was ignored stays ignored", "[stop_signals]") {
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
