#include "launcher/lifecycle/hang_watch.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using namespace std::chrono_literals;
using Evidence = Hang::Evidence;

namespace {

struct Job {
  HangWatch watch;
  HangWatch::Time now{1000s};
  int ranks;
  std::int64_t done = 0;

  explicit Job(std::optional<HangWatch::Time> limit, int size = 3) : watch(limit), ranks(size) {
    watch.begin_attempt("");
  }
  void steps(int count, HangWatch::Time each = 1s) {
    for (int i = 0; i < count; ++i) {
      now += each;
      ++done;
      for (int rank = 0; rank < ranks; ++rank) watch.record({.rank = rank, .step = done}, now);
    }
  }
  void phase(const std::string& name) {
    for (int rank = 0; rank < ranks; ++rank) watch.record({.rank = rank, .phase = name}, now);
  }
  std::optional<Hang> after(HangWatch::Time time, const std::vector<int>& suspended = {}) {
    return watch.find(now + time, suspended);
  }
};

}  // namespace

TEST_CASE("a job hangs when no rank makes progress for the fixed limit", "[hangs]") {
  Job job(10s);
  job.steps(5);
  CHECK_FALSE(job.after(9999ms));
  const auto hang = job.after(10s);
  REQUIRE(hang);
  CHECK(hang->lasted == 10s);
  CHECK(hang->limit == 10s);
  CHECK_FALSE(hang->learned);
  CHECK(hang->why == Evidence::none);
  CHECK(hang->like == std::vector<int>{0, 1, 2});

  SECTION("one rank that makes progress is enough") {
    job.watch.record({.rank = 1, .step = 6}, job.now + 9s);
    CHECK_FALSE(job.after(18s));
    CHECK(job.after(19s));
  }
  SECTION("a lower step, of a program that trains again, is progress") {
    job.watch.record({.rank = 1, .step = 0}, job.now + 9s);
    CHECK_FALSE(job.after(18s));
  }
  SECTION("the same step again is no progress") {
    job.watch.record({.rank = 1, .step = 5}, job.now + 9s);
    CHECK(job.after(10s));
  }
}

TEST_CASE("a rank that has done fewer steps is the cause of a hang", "[hangs]") {
  Job job(10s);
  job.steps(5);
  job.watch.record({.rank = 0, .step = 6}, job.now);
  job.watch.record({.rank = 2, .step = 6}, job.now);
  const auto hang = job.after(10s);
  REQUIRE(hang);
  CHECK(hang->rank == 1);
  CHECK(hang->why == Evidence::behind);
  CHECK(cause_of(*hang).kind == Cause::Kind::hang);
  CHECK(cause_of(*hang).text ==
        "hang: no rank made progress for 10 s (limit 10 s, from --hang-timeout); rank 1 has "
        "completed 5 steps, other ranks 6");
}

TEST_CASE("the advice after a hang names the summary of the evidence", "[hangs]") {
  const Hang hang{.why = Evidence::behind, .like = {0}};
  CHECK(cause_of(hang).advice.starts_with("find out what this rank was waiting for; if it was"));
  auto examined = hang;
  examined.evidence = "/logs/attempt_0/hang";
  CHECK(cause_of(examined).advice.starts_with(
      "find out what this rank was waiting for (see /logs/attempt_0/hang/summary.txt); if it was"));
}

TEST_CASE("a suspended rank is the cause of a hang whatever the others did", "[hangs]") {
  Job job(10s);
  job.steps(5);
  job.watch.record({.rank = 2, .step = 6}, job.now);
  const auto hang = job.after(12500ms, {2});
  REQUIRE(hang);
  CHECK(hang->rank == 2);
  CHECK(hang->why == Evidence::suspended);
  CHECK(cause_of(*hang).text ==
        "hang: no rank made progress for 12 s (limit 10 s, from --hang-timeout); rank 2 is "
        "suspended by a signal or a debugger");
}

TEST_CASE("a rank that alone is in another phase is the cause of a hang", "[hangs]") {
  Job job(10s);
  job.steps(5);
  job.watch.record({.rank = 0, .phase = "checkpoint"}, job.now);
  CHECK_FALSE(job.after(99s));  // the slowest rank's limit counts
  const auto hang = job.after(100s);
  REQUIRE(hang);
  CHECK(hang->rank == 0);
  CHECK(hang->why == Evidence::other_phase);
  CHECK(cause_of(*hang).text.ends_with("rank 0 is in phase checkpoint, most other ranks are not"));
}

TEST_CASE("the first steps of an attempt may take ten times the fixed limit", "[hangs]") {
  Job job(10s);
  job.phase("loading");
  CHECK_FALSE(job.after(99s));
  CHECK(job.after(100s));
  job.steps(2);
  CHECK_FALSE(job.after(99s));
  job.steps(1);
  CHECK(job.after(10s));
  job.watch.begin_attempt("");
  CHECK_FALSE(job.watch.watching());
  job.steps(1);
  CHECK_FALSE(job.after(99s));
}

TEST_CASE("quick steps that are not reported one by one count too", "[hangs]") {
  Job job(10s, 1);
  job.steps(1);
  job.watch.record({.rank = 0, .step = 1000}, job.now);
  CHECK(job.after(10s));
}

TEST_CASE("a learned limit follows the job's own steps and is generous", "[hangs]") {
  Job job(std::nullopt);
  job.steps(7);
  CHECK_FALSE(job.watch.limit());  // too few
  job.steps(1);
  SECTION("quick steps: at least half an hour, because the job may evaluate unannounced") {
    CHECK(job.watch.limit() == 30min);
    CHECK_FALSE(job.after(30min - 1ms));
    REQUIRE(job.after(30min));
    CHECK(job.after(30min)->learned);
  }
  SECTION("five minutes if the job says what takes long") {
    job.phase("checkpoint");
    job.steps(1);
    CHECK(job.watch.limit() == 5min);
  }
  SECTION("slow steps: twenty times their mean") {
    job.steps(1000, 200s);
    CHECK(job.watch.limit().value() > 60min);
    CHECK(job.watch.limit().value() <= 20 * 200s);
  }
  SECTION("three times the longest") {
    job.steps(1000);
    job.steps(1, 20min);
    CHECK(job.watch.limit() == 60min);
  }
}

TEST_CASE("a phase has a learned limit only once the job has completed one", "[hangs]") {
  Job job(std::nullopt);
  job.steps(20);
  job.phase("evaluation");
  CHECK_FALSE(job.after(1000h));
  job.now += 20min;
  job.phase(kTrainingPhase);
  CHECK(job.watch.limit() == 5min);
  job.phase("evaluation");
  CHECK(job.watch.limit() == 100min);
  CHECK(job.after(100min));

  SECTION("a slow rank in a new phase lets all others wait") {
    job.watch.record({.rank = 1, .phase = "checkpoint"}, job.now);
    CHECK_FALSE(job.after(1000h));
  }
}

TEST_CASE("slow starts never limit a restarted job that learns", "[hangs]") {
  Job job(std::nullopt);
  job.phase("loading");
  job.steps(20);
  job.watch.begin_attempt("");
  job.phase("loading");
  CHECK_FALSE(job.after(1000h));
  job.steps(3);
  CHECK(job.watch.limit() == 5min);  // as learned before the restart
}

TEST_CASE("ranks that exited or stopped reporting are not watched", "[hangs]") {
  Job job(10s);
  job.steps(5);
  job.watch.record({.rank = 0, .step = 6}, job.now);
  job.watch.forget(1);
  CHECK(job.after(10s)->rank == 2);
  job.watch.forget(0);
  job.watch.forget(2);
  CHECK_FALSE(job.watch.watching());
  CHECK_FALSE(job.after(1000h));
}

TEST_CASE("a suspended rank gets no more time in a checkpoint than in a step", "[hangs]") {
  SECTION("with a fixed limit") {
    Job job(10s);
    job.steps(1);
    CHECK_FALSE(job.after(9999ms, {1}));
    CHECK(job.after(10s, {1}));
    job.steps(4);
    job.phase("checkpoint");
    CHECK_FALSE(job.after(99s));
    const auto hang = job.after(10s, {1});
    REQUIRE(hang);
    CHECK(hang->rank == 1);
    CHECK(hang->limit == 10s);
  }
  SECTION("with a learned limit") {
    Job job(std::nullopt);
    job.steps(20);
    job.phase("checkpoint");
    CHECK_FALSE(job.after(24h));
    CHECK_FALSE(job.after(5min - 1s, {1}));
    CHECK(job.after(5min, {1}));
  }
}

TEST_CASE("a launcher without a suspect waits for the others", "[hangs]") {
  Job job(10s);
  job.watch.begin_attempt("host7");
  job.steps(5);
  CHECK_FALSE(job.after(24s));
  CHECK_FALSE(job.watch.overdue(job.now + 9s));
  CHECK(job.watch.overdue(job.now + 10s));
  CHECK(job.after(10s, {1}));
  const auto hang = job.after(25s);
  REQUIRE(hang);
  CHECK_THAT(cause_of(*hang).text,
             Catch::Matchers::StartsWith("hang: no rank on host7 made progress for 25 s"));
}

TEST_CASE("a limit of 0 finds no hangs", "[hangs]") {
  Job job(0s);
  job.steps(5);
  CHECK_FALSE(job.watch.watching());
  CHECK_FALSE(job.after(1000h));
}

TEST_CASE("a job with many phases keeps to bounded memory", "[hangs]") {
  Job job(std::nullopt, 1);
  job.steps(3);
  for (int i = 0; i < 1000; ++i) job.phase("phase" + std::to_string(i));
  CHECK_FALSE(job.watch.limit());
  job.phase("phase1");
  CHECK(job.watch.limit() == 30min);
}

TEST_CASE("ranks that wait for the new process of a replaced one do not hang", "[hangs]") {
  Job job(10s, 2);
  job.steps(5);
  job.now += 9s;
  job.watch.forget(1);
  job.watch.rank_replaced(1, job.now);
  CHECK_FALSE(job.after(99s));
  const auto hang = job.after(100s);
  REQUIRE(hang);
  CHECK(hang->rank == 1);
  SECTION("after some steps the limit of the training applies again") {
    job.now += 50s;
    job.steps(2);
    CHECK_FALSE(job.after(99s));
    job.steps(1);
    CHECK_FALSE(job.after(9s));
    CHECK(job.after(10s));
  }
  SECTION("the wait is not learned as the time of a step") {
    Job learning(std::nullopt, 2);
    learning.steps(20);
    const auto limit = learning.watch.limit();
    REQUIRE(limit);
    learning.watch.rank_replaced(1, learning.now);
    learning.now += 24h;
    learning.steps(5);
    CHECK(learning.watch.limit() == limit);
  }
}
