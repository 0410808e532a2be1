#include <stdexcept>
#include <utility>

#include "runtime/comm/comm.hpp"
#include "tests/support/catch.hpp"

using mgpu::comm::Pending;

TEST_CASE("a collective that nobody waited for is waited for when it is destroyed", "[comm]") {
  int waits = 0;
  {
    const Pending pending([&] { ++waits; });
    CHECK(pending.under_way());
  }
  CHECK(waits == 1);
}

TEST_CASE("a collective is waited for once", "[comm]") {
  int waits = 0;
  {
    Pending first([&] { ++waits; });
    Pending second(std::move(first));
    second.wait();
    second.wait();
    CHECK_FALSE(second.under_way());
  }
  CHECK(waits == 1);
}

TEST_CASE("a collective is waited for before another one takes its place", "[comm]") {
  int first = 0, second = 0;
  Pending pending([&] { ++first; });
  pending = Pending([&] { ++second; });
  CHECK(first == 1);
  CHECK(second == 0);
  pending = {};
  CHECK(second == 1);
}

TEST_CASE("a rank that fails does not wait for collectives that others may never join", "[comm]") {
  int waits = 0;
  try {
    const Pending pending([&] { ++waits; });
    throw std::runtime_error("out of memory");
  } catch (const std::runtime_error&) {
  }
  CHECK(waits == 0);
}
