#include "runtime/train/handover.hpp"

#include <limits>
#include <vector>

#include "tests/support/catch.hpp"

using namespace mgpu::train;

namespace {

constexpr RankPosition kLost{};

int source(const std::vector<RankPosition>& positions) {
  return source_of_state(positions);
}

}  // namespace

TEST_CASE("all ranks continue from one that is furthest, so that no step is lost", "[handover]") {
  CHECK(source({{7, 0}, {8, 0}, kLost}) == 1);
  CHECK(source({kLost, {7, 0}, {7, 0}}) == 1);
  CHECK(source({{0, 0}, kLost}) == 0);
}

TEST_CASE("what only some ranks have done after a step is done again", "[handover]") {
  CHECK(source({{8, 2}, {8, 1}, kLost}) == 1);
  CHECK(source({{7, 0}, {8, 1}, kLost}) == 1);
}

TEST_CASE("nothing can continue without a rank that has the state", "[handover]") {
  CHECK_THROWS_WITH(source({kLost, kLost}), "no rank is left that has the state of the training");
}

TEST_CASE("an interval keeps every bit on its way to a new rank", "[handover]") {
  const auto sent = Interval{.step = 12,
                             .total_steps = 40,
                             .epoch = 0.1,
                             .learning_rate = 1e-5 / 3,
                             .grad_norm = std::numeric_limits<double>::infinity(),
                             .loss_sum = -0.0,
                             .target_tokens = (std::int64_t{1} << 60) + 1,
                             .comm_seconds = 5e-324,
                             .rank_memory = {1, 2, 3}};
  const auto bytes = bytes_of(sent);
  const auto received = interval_of(bytes);
  CHECK(bytes_of(received) == bytes);
  CHECK(received.target_tokens == sent.target_tokens);
  CHECK(received.rank_memory == sent.rank_memory);
  CHECK_THROWS_WITH(interval_of(bytes.substr(1)), "the state for a new rank is incomplete");
}

TEST_CASE("a new first rank finds out what was logged before it", "[handover]") {
  CHECK(last_logged_step("[]") == 0);
  CHECK(last_logged_step(R"([{"step": 5, "loss": 2.5}, {"step": 10, "loss": null},
                            {"step": 12, "eval_loss": 1.0}, {"loss": 3}, 7])") == 10);
}
