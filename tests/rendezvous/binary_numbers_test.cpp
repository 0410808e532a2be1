#include "rendezvous/base/binary_numbers.hpp"

#include <cstdint>

#include "tests/support/catch.hpp"

using namespace mgpu::rendezvous;

TEST_CASE("numbers are read as they were written, at any offset", "[binary]") {
  std::string bytes = "x";
  put_number<std::uint32_t>(bytes, 0x01020304);
  put_number<std::int64_t>(bytes, -5);
  put_number<std::uint64_t>(bytes, ~0ULL);
  REQUIRE(bytes.size() == 1 + 4 + 8 + 8);
  CHECK(number_at<std::uint32_t>(bytes, 1) == 0x01020304);
  CHECK(number_at<std::int64_t>(bytes, 5) == -5);
  CHECK(number_at<std::uint64_t>(bytes, 13) == ~0ULL);
}
