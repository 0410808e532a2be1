#include "launcher/nodes/job_state.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;

TEST_CASE("the state of a job is read as it was written", "[job_state]") {
  const JobState running{.job = 7,
                         .counts = {.rounds = 3, .restarts = 1, .oom_count = 2},
                         .nodes = 4,
                         .left = 1,
                         .lease_and_grace = std::chrono::seconds(35)};
  CHECK(
      job_state_json(running) ==
      R"({"job":7,"lease_and_grace_ms":35000,"left":1,"nodes":4,"oom_count":2,"restarts":1,"rounds":3})");
  CHECK(parse_job_state(job_state_json(running)) == running);
  const JobState ended{.job = 7, .ended = 137};
  CHECK(parse_job_state(job_state_json(ended)) == ended);
}

TEST_CASE("text that is no state of a job is not accepted", "[job_state]") {
  const auto* text =
      GENERATE("", "{", "[7]", "{}", R"({"job":0,"rounds":1})", R"({"job":"7"})", R"({"job":-7})");
  CAPTURE(text);
  CHECK_FALSE(parse_job_state(text));
}

TEST_CASE("numbers that no job can have are limited", "[job_state]") {
  const auto state = parse_job_state(
      R"({"job":7,"rounds":99999999999,"restarts":-1,"nodes":"4","left":1.5,"ended":257,)"
      R"("lease_and_grace_ms":9223372036854775807})");
  REQUIRE(state);
  CHECK(*state == JobState{.job = 7,
                           .counts = {.rounds = 1'000'000'000},
                           .lease_and_grace = std::chrono::years(3),
                           .ended = 1});
}
