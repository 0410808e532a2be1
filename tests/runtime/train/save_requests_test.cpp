#include "runtime/train/save_requests.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::train;
using namespace std::chrono_literals;

namespace {

const SaveRequests::Time kStart{1h};

}  // namespace

TEST_CASE("a signal that reaches two ranks in different steps requests one checkpoint",
          "[save_requests]") {
  for (const std::int64_t later : {0, 1, 2, 5}) {
    SaveRequests first, second;
    int requests = 0;
    for (std::int64_t step = 0; step < 12; ++step) {
      const auto now = kStart + 10ms * step;
      const bool asked = first.take(step == 3, step, now);
      const bool asked_too = second.take(step == 3 + later, step, now);
      requests += asked ? 1 : 0;
      requests += asked_too ? 1 : 0;
      for (auto* rank : {&first, &second}) rank->record(step, asked || asked_too, now);
    }
    CHECK(requests == (later == 0 ? 2 : 1));  // in the same step, or in one of them
  }
}

TEST_CASE("a signal that arrives while the requested checkpoint is written is the same one",
          "[save_requests]") {
  SaveRequests second;
  CHECK_FALSE(second.take(false, 3, kStart));
  second.record(3, true, kStart);
  CHECK_FALSE(second.take(true, 4, kStart + 5min));
  CHECK(second.take(true, 5, kStart + 6min));
}

TEST_CASE("signals that the ranks get in the steps in flight are both passed on",
          "[save_requests]") {
  SaveRequests first, second;
  CHECK(first.take(true, 3, kStart));
  CHECK(second.take(true, 4, kStart));  // the outcome of step 3 is not read yet
  for (const std::int64_t step : {3, 4})
    for (auto* rank : {&first, &second}) rank->record(step, true, kStart);
  // Neither takes the next signal for the same one.
  CHECK(first.take(true, 6, kStart + 1s));
  CHECK(second.take(true, 6, kStart + 1s));
}

TEST_CASE("a later signal requests another checkpoint", "[save_requests]") {
  SaveRequests first, second;
  CHECK(first.take(true, 3, kStart));  // only this rank gets the signal
  first.record(3, true, kStart);
  second.record(3, true, kStart);
  CHECK_FALSE(second.take(false, 4, kStart));
  CHECK(first.take(true, 50, kStart + 1s));
  CHECK(second.take(true, 60, kStart + 11s));
}
