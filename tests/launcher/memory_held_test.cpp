#include "launcher/memory/held_memory.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;

namespace {

// A rank with a limit of 1000, of which `exact` is read.
struct Rank {
  std::uint64_t update(std::uint64_t own, std::uint64_t children) {
    return held.update({.own = own, .children_bytes = children, .children = {7, 8}}, 1000, [this] {
      ++readings;
      return exact;
    });
  }

  HeldMemory held;
  std::uint64_t exact = 0;
  int readings = 0;
};

}  // namespace

TEST_CASE("a rank whose sizes have a low sum holds no more than that", "[memory_held]") {
  Rank rank;
  CHECK(rank.update(200, 300) == 500);
  CHECK(rank.readings == 0);
  HeldMemory alone;
  CHECK(alone.update({.own = 1200}, 1000, [] { return 1; }) == 1200);
}

TEST_CASE("between two exact readings a rank does not seem to be at its limit", "[memory_held]") {
  Rank rank;
  rank.exact = 400;
  CHECK(rank.update(380, 1500) == 400);
  CHECK(rank.update(380, 1500) == 400);
  CHECK(rank.update(380, 1600) == 500);
  CHECK(rank.readings == 1);
  SECTION("and is read again when it may have come half the way to it") {
    rank.exact = 450;
    CHECK(rank.update(380, 1800) == 450);
    CHECK(rank.update(380, 2000) == 650);
    CHECK(rank.readings == 2);
    rank.exact = 1100;
    CHECK(rank.update(380, 2100) == 1100);
    CHECK(rank.update(380, 2100) == 1100);
  }
  SECTION("also after children have ended, since which the rest has grown") {
    CHECK(rank.update(380, 400) == 400);
    CHECK(rank.update(380, 600) == 600);
    rank.exact = 900;
    CHECK(rank.update(380, 720) == 900);
    CHECK(rank.readings == 2);
  }
  SECTION("but a rank whose own memory grows above it exceeds it") {
    rank.exact = 1300;
    CHECK(rank.update(1200, 100) == 1300);
  }
}

TEST_CASE("a rank whose exact memory is unknown is not above its limit because of its loaders",
          "[memory_held]") {
  Rank rank;
  CHECK(rank.update(300, 1500) == 300);
  CHECK(rank.update(1100, 1500) == 1100);
}
