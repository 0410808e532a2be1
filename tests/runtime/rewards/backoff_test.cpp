#include "runtime/rewards/backoff.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::rewards;
using namespace std::chrono_literals;

TEST_CASE("Retry-After is a number of seconds or a date", "[rewards][http]") {
  constexpr std::time_t kNow = 784111777;  // Sun, 06 Nov 1994 08:49:37 GMT
  CHECK(requested_wait("0", kNow) == 0s);
  CHECK(requested_wait("120", kNow) == 120s);
  CHECK(requested_wait("Sun, 06 Nov 1994 08:50:07 GMT", kNow) == 30s);
  CHECK(requested_wait("Sun, 06 Nov 1994 08:00:00 GMT", kNow) == 0s);
  for (const auto* text : {"", "soon", "-1", "1.5", "10 s", "99999999999999999999", "Sun, 06 Nov"})
    CHECK(requested_wait(text, kNow) == std::nullopt);
}

TEST_CASE("without Retry-After the wait doubles up to half a minute", "[rewards][http]") {
  CHECK(usual_wait(0) == 500ms);
  CHECK(usual_wait(1) == 1s);
  CHECK(usual_wait(5) == 16s);
  CHECK(usual_wait(6) == 30s);
  CHECK(usual_wait(1000000) == 30s);
}
