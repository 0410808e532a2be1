#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "runtime/data/collate.hpp"
#include "runtime/data/loader.hpp"
#include "tests/runtime/data/support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::data;
using namespace mgpu::tests;

namespace {

using Sequences = std::multiset<std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>>>;

// Returns the sequences of a batch with their targets, and checks the invariants of a batch.
Sequences sequences_of(const Batch& batch) {
  REQUIRE(batch.tokens.size() == batch.targets.size());
  REQUIRE(batch.tokens.size() == batch.positions.size());
  REQUIRE(batch.starts.front() == 0);
  REQUIRE(batch.starts.back() == static_cast<std::int32_t>(batch.tokens.size()));
  Sequences out;
  std::int32_t longest = 0;
  for (std::size_t s = 0; s + 1 < batch.starts.size(); ++s) {
    const auto begin = batch.starts[s], end = batch.starts[s + 1];
    REQUIRE(begin < end);
    longest = std::max(longest, end - begin);
    for (std::int32_t i = begin; i < end; ++i) REQUIRE(batch.positions[i] == i - begin);
    REQUIRE(batch.targets[end - 1] == kNoTarget);
    for (std::int32_t i = begin; i + 1 < end; ++i)
      REQUIRE((batch.targets[i] == kNoTarget || batch.targets[i] == batch.tokens[i + 1]));
    out.insert({{batch.tokens.begin() + begin, batch.tokens.begin() + end},
                {batch.targets.begin() + begin, batch.targets.begin() + end}});
  }
  REQUIRE(batch.longest == longest);
  REQUIRE(batch.target_tokens == std::count_if(batch.targets.begin(), batch.targets.end(),
                                               [](auto t) { return t != kNoTarget; }));
  return out;
}

struct Seen {
  std::vector<Sequences> steps;
  std::vector<std::int64_t> target_tokens;
};

// What all ranks together compute in each step.
Seen run(const Dataset& dataset, const ScheduleOptions& options, LoaderOptions loading) {
  Seen seen;
  seen.steps.resize(static_cast<std::size_t>(loading.end_step - loading.first_step));
  for (loading.rank = 0; loading.rank < loading.world; ++loading.rank) {
    Loader loader(dataset, Schedule(dataset.lengths(), all_of(dataset.size()), options), loading);
    seen.target_tokens.clear();
    for (auto& step : seen.steps) {
      const auto batches = loader.next();
      REQUIRE(batches);
      for (const Batch& micro_batch : batches->micro_batches) {
        if (micro_batch.target_tokens == 0 && micro_batch.tokens.size() == 1) continue;  // no work
        step.merge(sequences_of(micro_batch));
      }
      seen.target_tokens.push_back(batches->target_tokens);
    }
    CHECK_FALSE(loader.next());
  }
  return seen;
}

}  // namespace

TEST_CASE("targets are the labels of the next token and stay within their sequence", "[collate]") {
  const TempDir dir(TempDir::in_memory());
  write(dir.path("a.jsonl"), R"({"input_ids": [1, 2, 3], "labels": [1, -100, 3]})"
                             "\n"
                             R"({"input_ids": [4, 5], "labels": [-100, 9]})"
                             "\n");
  const Dataset dataset =
      prepare({{dir.path("a.jsonl")}}, {.cache = dir.path("cache")}, ToyEncoder()).dataset;
  const std::vector<std::uint32_t> both = {1, 0};
  const Batch batch = collate(dataset, both);
  CHECK(batch.tokens == std::vector<std::int32_t>{4, 5, 1, 2, 3});
  CHECK(batch.targets == std::vector<std::int32_t>{9, kNoTarget, kNoTarget, 3, kNoTarget});
  CHECK(batch.positions == std::vector<std::int32_t>{0, 1, 0, 1, 2});
  CHECK(batch.starts == std::vector<std::int32_t>{0, 2, 5});
  CHECK(batch.longest == 3);
  CHECK(batch.target_tokens == 2);

  const Batch empty = collate(dataset, {});
  CHECK(empty.tokens.size() == 1);
  CHECK(empty.target_tokens == 0);
  CHECK(sequences_of(empty).size() == 1);
}

TEST_CASE("a step's content does not depend on world, micro-batches or weights", "[loader]") {
  const TempDir dir(TempDir::in_memory());
  const Dataset dataset = dataset_of(dir, some_lengths(150, 64), 64);
  ScheduleOptions options{.seed = 3, .global_batch = 24};
  const int kind = GENERATE(0, 1, 2);
  if (kind == 1) options.packing = true, options.capacity = 128, options.global_batch = 6;
  if (kind == 2) options.group_by_length = true;
  Schedule schedule(dataset.lengths(), all_of(dataset.size()), options);
  const std::int64_t total = schedule.total_steps(2);
  const Seen alone = run(dataset, options, {.max_items = 24, .end_step = total});
  std::size_t sequences = 0;
  for (std::size_t step = 0; step < alone.steps.size(); ++step) {
    sequences += alone.steps[step].size();
    std::int64_t labels = 0;
    for (const auto& [tokens, targets] : alone.steps[step])
      labels +=
          std::count_if(targets.begin(), targets.end(), [](auto t) { return t != kNoTarget; });
    CHECK(labels == alone.target_tokens[step]);
  }
  CHECK(sequences == 2 * dataset.size());

  for (int world = 1; world <= 8; ++world)
    for (std::int64_t micro_batches = 1; micro_batches <= 4; ++micro_batches) {
      LoaderOptions loading{
          .world = world,
          .max_items = (options.global_batch + world * micro_batches - 1) / (world * micro_batches),
          .quadratic = 0.01,
          .end_step = total};
      if (micro_batches == 3)
        loading.weights = [&](std::int64_t step) {
          std::vector<double> weights;
          for (int r = 0; r < world; ++r) weights.push_back(1 + (step + r) % 3);
          return weights;
        };
      CAPTURE(world, micro_batches);
      const Seen seen = run(dataset, options, loading);
      CHECK(seen.steps == alone.steps);
      CHECK(seen.target_tokens == alone.target_tokens);
    }
}

TEST_CASE("a run resumed at a step equals an uninterrupted run", "[loader]") {
  const TempDir dir(TempDir::in_memory());
  const Dataset dataset = dataset_of(dir, some_lengths(90, 64));
  ScheduleOptions options{.seed = 3, .global_batch = 8};
  if (GENERATE(false, true)) options.packing = true, options.capacity = 100;
  Schedule schedule(dataset.lengths(), all_of(dataset.size()), options);
  const std::int64_t total = schedule.total_steps(3);
  const Seen straight = run(dataset, options, {.max_items = 8, .end_step = total});
  for (std::int64_t first = 1; first < total; first += 3) {
    const Seen resumed = run(
        dataset, options,
        {.world = 3, .max_items = 2, .first_step = first, .end_step = total, .prefetch_steps = 1});
    CHECK(std::equal(resumed.steps.begin(), resumed.steps.end(), straight.steps.begin() + first,
                     straight.steps.end()));
  }
}

TEST_CASE("the same rank gets the same batches bit for bit with any number of threads",
          "[loader]") {
  const TempDir dir(TempDir::in_memory());
  const Dataset dataset = dataset_of(dir, some_lengths(50, 64));
  LoaderOptions loading{.rank = 1, .world = 2, .max_items = 3, .end_step = 25};
  const Schedule schedule(dataset.lengths(), all_of(dataset.size()), {.global_batch = 10});
  Loader first(dataset, schedule, loading);
  loading.threads = GENERATE(0, 1, 2, 7);
  loading.prefetch_steps = GENERATE(1U, 3U, 20U);
  Loader second(dataset, schedule, loading);
  while (auto a = first.next()) {
    auto b = second.next();
    REQUIRE(b);
    REQUIRE(a->step == b->step);
    REQUIRE(a->micro_batches.size() == b->micro_batches.size());
    for (std::size_t m = 0; m < a->micro_batches.size(); ++m) {
      CHECK(a->micro_batches[m].tokens == b->micro_batches[m].tokens);
      CHECK(a->micro_batches[m].targets == b->micro_batches[m].targets);
      CHECK(a->micro_batches[m].starts == b->micro_batches[m].starts);
    }
  }
  CHECK_FALSE(second.next());
}

TEST_CASE("a loader has as many threads as requested", "[loader]") {
  const TempDir dir(TempDir::in_memory());
  const Dataset dataset = dataset_of(dir, {4, 5, 6, 7});
  // By their ids: a thread of an earlier test may be counted for a moment after its end.
  const auto threads = [] {
    std::set<std::string> ids;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
      ids.insert(task.path().filename());
    return ids;
  };
  const auto before = threads();
  const int wanted = GENERATE(0, 1, 4);
  Loader loader(dataset, Schedule(dataset.lengths(), all_of(4), {.global_batch = 1}),
                {.end_step = 1000000, .threads = wanted});
  CHECK(loader.next());
  auto now = threads();
  std::erase_if(now, [&](const auto& id) { return before.contains(id); });
  CHECK(now.size() == static_cast<std::size_t>(wanted));
}

TEST_CASE("without threads next() prepares its step itself", "[loader]") {
  const TempDir dir(TempDir::in_memory());
  const Dataset dataset = dataset_of(dir, {4, 5, 6, 7});
  std::vector<std::int64_t> asked;
  const auto caller = std::this_thread::get_id();
  bool elsewhere = false;
  Loader loader(dataset, Schedule(dataset.lengths(), all_of(4), {.global_batch = 1}),
                {.end_step = 4, .threads = 0, .weights = [&](std::int64_t step) {
                   asked.push_back(step);
                   elsewhere = elsewhere || std::this_thread::get_id() != caller;
                   return std::vector<double>{1};
                 }});
  CHECK(asked.empty());
  CHECK(loader.next()->step == 0);
  CHECK(loader.next()->step == 1);
  CHECK(asked == std::vector<std::int64_t>{0, 1});
  CHECK_FALSE(elsewhere);
}

TEST_CASE("an evaluation covers every example once over all ranks", "[loader]") {
  const TempDir dir(TempDir::in_memory());
  const Dataset dataset = dataset_of(dir, some_lengths(31, 64));
  const int world = GENERATE(1, 2, 4, 8);
  ScheduleOptions options{.global_batch = 2 * world, .shuffle = false};
  if (GENERATE(false, true)) options.packing = true, options.capacity = 64;
  Schedule schedule(dataset.lengths(), all_of(dataset.size()), options);
  const Seen seen =
      run(dataset, options, {.world = world, .max_items = 2, .end_step = schedule.steps_in(0)});
  Sequences all;
  for (Sequences step : seen.steps) all.merge(step);
  CHECK(all.size() == 31);
  std::set<std::int32_t> first;
  for (const auto& [tokens, targets] : all) first.insert(tokens.front());
  CHECK(first.size() == 31);
}

TEST_CASE("an exception on the loader's thread is thrown by the next() of its step", "[loader]") {
  const int threads = GENERATE(0, 1, 3);
  const TempDir dir(TempDir::in_memory());
  const Dataset dataset = dataset_of(dir, {4, 5, 6, 7});
  Loader loader(
      dataset, Schedule(dataset.lengths(), all_of(4), {.global_batch = 1}),
      {.end_step = 4, .prefetch_steps = 4, .threads = threads, .weights = [](std::int64_t step) {
         if (step == 2) throw std::runtime_error("no weights for step 2");
         return std::vector<double>{1};
       }});
  CHECK(loader.next());
  CHECK(loader.next());
  CHECK_THROWS_WITH(loader.next(), "no weights for step 2");
  CHECK_THROWS_WITH(loader.next(), "no weights for step 2");
}

TEST_CASE("a loader that is not read to the end can be destroyed", "[loader]") {
  const TempDir dir(TempDir::in_memory());
  const Dataset dataset = dataset_of(dir, some_lengths(100, 64));
  const int read = GENERATE(0, 1, 3);
  const int threads = GENERATE(0, 1, 3);
  Loader loader(dataset, Schedule(dataset.lengths(), all_of(100), {.global_batch = 1}),
                {.end_step = 1000000, .threads = threads});
  for (int i = 0; i < read; ++i) CHECK(loader.next());
}

TEST_CASE("weights are requested in order and a bounded number of steps ahead", "[loader]") {
  const int threads = GENERATE(1, 4);
  const TempDir dir(TempDir::in_memory());
  const Dataset dataset = dataset_of(dir, some_lengths(40, 64));
  std::atomic<std::int64_t> read{0};
  std::vector<std::int64_t> asked;
  std::int64_t furthest = 0;
  {
    Loader loader(dataset, Schedule(dataset.lengths(), all_of(40), {.global_batch = 2}),
                  {.end_step = 20,
                   .prefetch_steps = 3,
                   .threads = threads,
                   .weights = [&](std::int64_t step) {
                     asked.push_back(step);
                     furthest = std::max(furthest, step - read.load());
                     return std::vector<double>{1};
                   }});
    while (loader.next()) ++read;
  }
  CHECK(asked.size() == 20);
  CHECK(std::is_sorted(asked.begin(), asked.end()));
  CHECK(furthest <= 4);
}

TEST_CASE("the attention of a step is that of each sequence, over all ranks", "[loader]") {
  const TempDir dir(TempDir::in_memory());
  const Dataset dataset = dataset_of(dir, {4, 5, 6, 7});
  ScheduleOptions options{.global_batch = 4};
  if (GENERATE(false, true)) options = {.global_batch = 1, .packing = true, .capacity = 22};
  Loader loader(dataset, Schedule(dataset.lengths(), all_of(4), options),
                {.rank = 1, .world = 2, .end_step = 1});
  CHECK(loader.next()->attention_pairs == 10 + 15 + 21 + 28);
}
