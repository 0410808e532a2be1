#include "launcher/lifecycle/signal.hpp"

#include "tests/support/catch.hpp"

using mgpu::launcher::Signal;

TEST_CASE("a signal has a number, and the exit status that shells report for it", "[signals]") {
  constexpr Signal terminate = SIGTERM;
  static_assert(terminate && terminate.number() == SIGTERM);
  CHECK(terminate.shell_status() == 143);
  CHECK(terminate == Signal::numbered(15));
  CHECK_FALSE(terminate == Signal(SIGINT));
}

TEST_CASE("no signal is false and has the number 0", "[signals]") {
  CHECK_FALSE(Signal());
  CHECK(Signal().number() == 0);
  CHECK(Signal() == Signal::numbered(0));
}

TEST_CASE("a signal keeps any number that a message contains", "[signals]") {
  CHECK(Signal::numbered(-1).number() == -1);
  CHECK(Signal::numbered(1'000'000));
}
