#include "launcher/lifecycle/activity_watch.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using namespace std::chrono_literals;
using Evidence = Hang::Evidence;
using Catch::Matchers::StartsWith;

namespace {

// Two ranks, looked at every second.
struct Ranks {
  ActivityWatch watch;
  HangWatch::Time now{1000s};
  ActivitySample sample{.ranks = {{.rank = 4}, {.rank = 5}}, .gpu_percent = 0};

  explicit Ranks(ActivitySigns signs, const std::string& host = "") : watch(signs, 10s) {
    watch.begin_attempt(host, now);
  }
  // Each second rank 5 writes so much, needs so much CPU time, and the GPU is used by so much.
  void seconds(int count, std::uint64_t bytes = 0, std::chrono::milliseconds cpu = 0ms,
               int gpu_percent = 0) {
    for (int i = 0; i < count; ++i) {
      now += 1s;
      sample.ranks[1].output_bytes += bytes;
      sample.ranks[1].cpu += cpu;
      sample.gpu_percent = gpu_percent;
      watch.record(sample, now);
    }
  }
  std::optional<Hang> find(const std::vector<int>& suspended = {}) const {
    return watch.find(now, suspended);
  }
};

}  // namespace

TEST_CASE("ranks that do nothing hang after the limit", "[hangs]") {
  Ranks ranks({.output = true, .cpu = true, .gpu = true});
  ranks.seconds(5, 1);
  ranks.seconds(9);
  CHECK_FALSE(ranks.find());
  ranks.seconds(1);
  const auto hang = ranks.find();
  REQUIRE(hang);
  CHECK(hang->why == Evidence::none);
  CHECK(hang->like == std::vector<int>{4, 5});
  CHECK(hang->rank == 4);  // idle for longer
  const auto cause = cause_of(*hang);
  CHECK(cause.kind == Cause::Kind::hang);
  CHECK(cause.text ==
        "hang: no rank wrote output or used a CPU or used a GPU for 10 s (limit 10 s, from "
        "--hang-timeout); no rank stands out");
  CHECK_THAT(cause.advice, Catch::Matchers::Contains("choose other signs of activity"));

  SECTION("a suspended rank is the cause") {
    CHECK(ranks.find({5})->rank == 5);
    CHECK(ranks.find({5})->why == Evidence::suspended);
  }
  SECTION("unless one is active again") {
    ranks.seconds(1, 1);
    CHECK_FALSE(ranks.find());
  }
}

TEST_CASE("only the chosen signs count", "[hangs]") {
  struct Case {
    const char* name;
    ActivitySigns signs;
    bool output, cpu, gpu;  // whether a rank that does only this is active
  };
  const auto [name, signs, output, cpu, gpu] = GENERATE(values<Case>({
      {"output", {.output = true}, true, false, false},
      {"cpu", {.cpu = true}, false, true, false},
      {"gpu", {.gpu = true}, false, false, true},
      {"all", {.output = true, .cpu = true, .gpu = true}, true, true, true},
  }));
  CAPTURE(name);
  Ranks writes(signs), computes(signs), uses_gpu(signs);
  writes.seconds(20, 1);
  CHECK(writes.find().has_value() != output);
  computes.seconds(20, 0, 1000ms);
  CHECK(computes.find().has_value() != cpu);
  uses_gpu.seconds(20, 0, 0ms, 100);
  CHECK(uses_gpu.find().has_value() != gpu);
}

TEST_CASE("a rank that only looks at the clock now and then is not active", "[hangs]") {
  Ranks ranks({.cpu = true, .gpu = true});
  ranks.seconds(20, 0, 40ms, 4);  // percent
  CHECK(ranks.find());
  ranks.seconds(1, 0, 50ms);
  CHECK_FALSE(ranks.find());
}

TEST_CASE("one step of the kernel's clock in a short time is no activity", "[hangs]") {
  ActivityWatch watch({.cpu = true}, 1s);
  watch.begin_attempt("", 0s);
  for (int i = 1; i <= 10; ++i) watch.record({.ranks = {{.rank = 0, .cpu = 10ms * i}}}, i * 125ms);
  CHECK(watch.find(1250ms, {}));
}

TEST_CASE("GPUs whose use is unknown never make a job hang alone", "[hangs]") {
  Ranks alone({.gpu = true});
  alone.seconds(20, 0, 0ms, -1);
  CHECK_FALSE(alone.find());
  Ranks also({.output = true, .gpu = true});
  also.seconds(20, 0, 0ms, -1);
  CHECK(also.find());
}

TEST_CASE("ranks that have waited for one that exits do not hang at once", "[hangs]") {
  Ranks ranks({.output = true});
  ranks.seconds(60, 1);  // rank 4 waits for rank 5
  ranks.sample.ranks.pop_back();
  ranks.now += 1s;
  ranks.watch.record(ranks.sample, ranks.now);
  CHECK_FALSE(ranks.find());
  CHECK(ranks.watch.find(ranks.now + 9s, {}));
}

TEST_CASE("a process that takes the place of a lost one is not idle at once", "[hangs]") {
  Ranks ranks({.output = true});
  ranks.seconds(9);
  const auto ranks_before = ranks.sample.ranks;
  ranks.sample.ranks.clear();
  ranks.watch.record(ranks.sample, ranks.now);
  ranks.sample.ranks = ranks_before;
  ranks.seconds(9);
  CHECK_FALSE(ranks.find());
  ranks.seconds(2);
  CHECK(ranks.find());
}

TEST_CASE("a rank that has exited is neither active nor the cause", "[hangs]") {
  Ranks ranks({.output = true});
  ranks.seconds(5, 1);
  ranks.sample.ranks = {{.rank = 5, .output_bytes = 5}, {.rank = 6}};
  ranks.seconds(11);
  REQUIRE(ranks.find());
  CHECK(ranks.find()->like == std::vector<int>{5, 6});
}

TEST_CASE("nothing is watched without signs or without a limit", "[hangs]") {
  CHECK_FALSE(ActivityWatch({}, 10s).enabled());
  CHECK_FALSE(ActivityWatch({.cpu = true}, std::nullopt).enabled());
  CHECK_FALSE(ActivityWatch({.cpu = true}, 0s).enabled());
}

TEST_CASE("the ranks of a node do not hang while those of other nodes are active", "[hangs]") {
  Ranks ranks({.output = true}, "host7");
  ranks.seconds(30);
  CHECK_FALSE(ranks.watch.overdue(ranks.now));
  ranks.watch.set_job_idle(9s);
  CHECK_FALSE(ranks.find());
  ranks.watch.set_job_idle(10s);
  REQUIRE(ranks.find());
  CHECK_THAT(cause_of(*ranks.find()).text,
             StartsWith("hang: no rank on host7 wrote output for 30 s (limit 10 s"));
  SECTION("the next attempt begins anew") {
    ranks.watch.begin_attempt("host7", ranks.now);
    ranks.seconds(30);
    CHECK_FALSE(ranks.find());
  }
}

TEST_CASE("a node without a suspect waits for the others", "[hangs]") {
  Ranks ranks({.output = true}, "host7");
  ranks.watch.set_job_idle(1h);
  ranks.seconds(11);
  CHECK(ranks.watch.overdue(ranks.now));
  CHECK(ranks.find({4}));
  CHECK_FALSE(ranks.find());
  ranks.seconds(14);
  CHECK(ranks.find());
}
