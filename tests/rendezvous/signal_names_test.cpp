#include "rendezvous/base/signal_names.hpp"

#include <csignal>

#include "tests/support/catch.hpp"

using namespace mgpu::rendezvous;

TEST_CASE("signals have the names that a shell gives them", "[signals]") {
  CHECK(signal_name(SIGTERM) == "SIGTERM");
  CHECK(signal_name(SIGKILL) == "SIGKILL");
  CHECK(signal_name(SIGRTMIN + 6) == "signal 40");
  CHECK(signal_name(0) == "signal 0");
}

TEST_CASE("a signal is found by its name in any case, with or without SIG", "[signals]") {
  for (const char* name : {"SIGTERM", "TERM", "sigterm", "Term"})
    CHECK(signal_number(name) == SIGTERM);
  for (const char* name : {"", "SIG", "15", "SIGNONE", "TERM "}) CHECK(signal_number(name) == 0);
}
