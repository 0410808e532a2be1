#include "rendezvous/base/seeds.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::rendezvous;

// Runs of earlier versions were made with these values: another value is another run.

TEST_CASE("derived seeds keep their values", "[seeds]") {
  CHECK(mix_bits(1) == 0x5692161d100b05e5);
  CHECK(mix_bits(~0ULL) == 0xb4d055fcf2cbbd7b);
  CHECK(derive_seed(0, 0) == 0xe220a8397b1dcdaf);
  CHECK(derive_seed(42, 3) == 0x581ce1ff0e4ae394);
  CHECK(derive_seed(~0ULL, ~0ULL) == 0xb4d055fcf2cbbd7b);
}

TEST_CASE("seeds mixed from several numbers keep their values", "[seeds]") {
  SECTION("those of a micro-batch's dropout") {
    CHECK(mix_seed(42, {0, 0, 0}) == 0x44d8415c05a09fe0);
    CHECK(mix_seed(42, {17, 3, 2}) == 0x54e990b0511f9d55);
  }
  SECTION("those of GRPO's generations, evaluation and dropout") {
    constexpr std::uint64_t kStart = 0x243f6a8885a308d3;
    CHECK(mix_seed(kStart, {42, 5}) == 0xca6410ad186a07ea);
    CHECK(mix_seed(kStart, {42, ~0ULL}) == 0x804f14ffba8e330f);
    CHECK(mix_seed(kStart, {42, 5, 1, 3}) == 0x3216ca430b787ea5);
  }
  SECTION("the order of the numbers matters") {
    CHECK(mix_seed(42, {1, 2}) != mix_seed(42, {2, 1}));
  }
}
