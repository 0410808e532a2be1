#include "runtime/data/stream.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <zlib.h>

#include "tests/runtime/data/support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::data;
using namespace mgpu::tests;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

using Texts = std::vector<std::string>;

std::string rows_of(const std::string& name, int count) {
  std::string rows;
  for (int i = 0; i < count; ++i) rows += fmt::format("{{\"text\": \"{}{}\"}}\n", name, i);
  return rows;
}

struct Setup {
  const TempDir dir{TempDir::in_memory()};
  const ToyEncoder encoder;
  PrepareOptions rows = {};
  StreamOptions options = {.folder = dir.path("windows"), .window_rows = 4};
  ScheduleOptions schedule = {.global_batch = 2};

  std::vector<Source> file(const std::string& name, const std::string& text) const {
    write(dir.path(name), text);
    return {{.path = dir.path(name)}};
  }
  Stream open(const std::vector<Source>& sources) const {
    return {sources, rows, options, encoder};
  }
  std::size_t files() const {
    if (!fs::exists(options.folder)) return 0;
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(options.folder), fs::directory_iterator()));
  }
};

Texts texts_of(const FedStep& fed) {
  Texts texts;
  for (const auto example : fed.step.items.examples)
    texts.push_back(ToyEncoder().decode((*fed.dataset)[example].ids));
  return texts;
}

// The steps from `first` to `end`, each after the windows of earlier steps are released.
std::vector<Texts> steps_of(Stream& stream, std::int64_t first, std::int64_t end) {
  std::vector<Texts> steps;
  for (auto step = first; step < end; ++step) {
    steps.push_back(texts_of(stream.at(step, {})));
    stream.release(step);
  }
  return steps;
}

Texts all_in(const std::vector<Texts>& steps) {
  Texts all;
  for (const auto& step : steps) all.insert(all.end(), step.begin(), step.end());
  return all;
}

Texts sorted(Texts texts) {
  std::sort(texts.begin(), texts.end());
  return texts;
}

// The rows of one pass.
Texts pass_of(const Setup& setup, std::vector<Source> sources, const Mixture& mixture,
              std::int64_t pass = 0) {
  PrepareOptions options = setup.rows;
  options.streamed = true;
  std::vector<SourcePlan> plans;
  for (const auto& source : sources) plans.push_back(plan_source(source, options, setup.encoder));
  RowStream stream(plans, mixture, 1, pass);
  Texts texts;
  for (StreamRow row; stream.next(row);)
    texts.push_back(plans[row.source].file.syntax().parse(row.text).at("text"));
  return texts;
}

std::int64_t count_of(const Texts& texts, char first) {
  return std::count_if(texts.begin(), texts.end(),
                       [&](const auto& text) { return text.front() == first; });
}

void write_gzip(const std::string& path, const std::string& text) {
  gzFile file = gzopen(path.c_str(), "wb");
  gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  gzclose(file);
}

}  // namespace

TEST_CASE("a stream has each row once in a pass, in windows, and then starts over", "[stream]") {
  const Setup setup;
  auto stream = setup.open(setup.file("a.jsonl", rows_of("a", 10)));
  stream.start({}, setup.schedule);
  const auto first = steps_of(stream, 0, 5), second = steps_of(stream, 5, 10);
  CHECK(first[4].size() == 2);
  CHECK(sorted(all_in({first.begin(), first.begin() + 2})) ==
        Texts{"a0<eos>", "a1<eos>", "a2<eos>", "a3<eos>"});
  CHECK(sorted(all_in(first)) == sorted(all_in(second)));
  const auto rows = all_in(first);
  CHECK(rows.size() == 10);
  CHECK(std::set<std::string>(rows.begin(), rows.end()).size() == 10);
  CHECK(all_in(first) != all_in(second));
  CHECK(stream.place_of(9) == StreamPlace{.window = {1, 2}, .first_step = 9});
}

TEST_CASE("a stream that goes on at a place has the steps of one that was not interrupted",
          "[stream]") {
  Setup setup;
  setup.schedule.packing = GENERATE(false, true);
  setup.schedule.capacity = 12;
  setup.rows.max_length = 12;
  setup.options.mixture.strategy = GENERATE(MixStrategy::concat, MixStrategy::interleave_over);
  auto sources = setup.file("a.jsonl", rows_of("a", 11));
  sources.push_back(setup.file("b.jsonl", rows_of("b", 6))[0]);
  sources[1].mixed_as = sources[1].dataset = 1;
  std::vector<Texts> whole;
  std::vector<StreamPlace> places;
  {
    auto stream = setup.open(sources);
    stream.start({}, setup.schedule);
    for (std::int64_t step = 0; step < 20; ++step) {
      whole.push_back(texts_of(stream.at(step, {})));
      places.push_back(stream.place_of(step));
      stream.release(step);
    }
  }
  CHECK(places.back().window.pass > 0);
  for (std::int64_t from = 0; from < 20; from += 3) {
    CAPTURE(from);
    auto stream = setup.open(sources);
    stream.start(places[static_cast<std::size_t>(from)], setup.schedule);
    CHECK(steps_of(stream, from, 20) == std::vector<Texts>(whole.begin() + from, whole.end()));
  }
}

TEST_CASE("at most a few windows are on disk, and none when the stream has ended", "[stream]") {
  Setup setup;
  setup.options.window_rows = 2;  // windows of one step
  {
    auto stream = setup.open(setup.file("a.jsonl", rows_of("a", 40)));
    stream.start({}, setup.schedule);
    for (std::int64_t step = 0; step < 30; ++step) {
      stream.at(step, {});
      stream.release(step - 1);
      CHECK(setup.files() <= 3 + 1);  // one is being renamed
    }
  }
  CHECK_FALSE(fs::exists(setup.options.folder));
}

TEST_CASE("one process of a node tokenizes for the others", "[stream]") {
  Setup setup;
  const auto sources = setup.file("a.jsonl", rows_of("a", 10));
  auto writer = setup.open(sources);
  setup.options.makes_windows = false;
  auto reader = setup.open(sources);
  reader.start({}, setup.schedule);
  std::vector<Texts> read;
  std::jthread other([&] { read = steps_of(reader, 0, 4); });
  writer.start({}, setup.schedule);
  std::vector<Texts> written;
  for (std::int64_t step = 0; step < 4; ++step) written.push_back(texts_of(writer.at(step, {})));
  other.join();
  CHECK(read == written);
}

TEST_CASE("a process that waits for a window can be stopped", "[stream]") {
  Setup setup;
  setup.options.makes_windows = false;
  auto stream = setup.open(setup.file("a.jsonl", rows_of("a", 10)));
  stream.start({}, setup.schedule);
  std::stop_source stop;
  stop.request_stop();
  CHECK_THROWS_WITH(stream.at(0, stop.get_token()), Contains("stopped"));
}

TEST_CASE("opening a stream leaves the windows of a running one in place", "[stream]") {
  const Setup setup;
  const auto sources = setup.file("a.jsonl", rows_of("a", 10));
  auto stream = setup.open(sources);
  stream.start({}, setup.schedule);
  stream.at(0, {});
  const auto window = setup.options.folder / "0-0.tokens";
  CHECK(fs::exists(window));
  CHECK_FALSE(setup.open(sources).digests().empty());  // as `mgpu-train tokenize` does
  CHECK(fs::exists(window));
}

TEST_CASE("the windows of a killed run are removed", "[stream]") {
  const Setup setup;
  fs::create_directories(setup.options.folder);
  write(setup.options.folder / "0-0.tokens", "old");
  setup.open(setup.file("a.jsonl", rows_of("a", 10))).clear_folder();
  CHECK(setup.files() == 0);
}

TEST_CASE("a process does not wait for a window of one that has ended", "[stream]") {
  Setup setup;
  const auto sources = setup.file("a.jsonl", rows_of("a", 5) + "{\"prompt\": 1}\n");
  auto stream = setup.open(sources);
  stream.clear_folder();
  stream.start({}, setup.schedule);
  setup.options.makes_windows = false;
  auto other = setup.open(sources);
  other.start({}, setup.schedule);
  other.at(0, {});
  CHECK_THROWS_WITH(stream.at(2, {}), Contains("a.jsonl:6"));
  stream.discard();
  CHECK_THROWS_WITH(other.at(2, {}), Contains("the rank that tokenizes on this node has ended"));
}

TEST_CASE("a bad row of a stream is named and leaves no file", "[stream]") {
  Setup setup;
  const auto sources = setup.file("a.jsonl", rows_of("a", 5) + "{\"prompt\": 1}\n");
  auto stream = setup.open(sources);
  stream.start({}, setup.schedule);
  stream.at(0, {});
  CHECK_THROWS_WITH(stream.at(2, {}), Contains("a.jsonl:6: the column \"text\" is missing"));
  stream.discard();
  CHECK_FALSE(fs::exists(setup.options.folder));

  SECTION("and with on_bad_row: skip it is left out and reported") {
    setup.rows.skip_bad_rows = true;
    auto skipping = setup.open(sources);
    skipping.start({}, setup.schedule);
    CHECK(texts_of(skipping.at(2, {})) == Texts{"a4<eos>"});
    const auto lines = skipping.take_lines();
    REQUIRE(lines.size() == 1);
    CHECK_THAT(lines[0], Contains("rows from 5 of pass 1: 1 of 2 rows skipped as bad"));
    CHECK_THAT(lines[0], Contains("a.jsonl:6"));
  }
}

TEST_CASE("windows without an example are passed over; a stream without any is refused",
          "[stream]") {
  Setup setup;
  const std::string dropped = R"({"input_ids": [1, 2], "labels": [-100, -100]})"
                              "\n";
  const std::string kept = R"({"input_ids": [1, 50], "labels": [-100, 50]})"
                           "\n";
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += dropped;
  SECTION("some") {
    auto stream = setup.open(setup.file("a.jsonl", rows + kept));
    stream.start({}, setup.schedule);
    CHECK(stream.at(0, {}).step.items.size() == 1);
    CHECK(stream.at(1, {}).step.epoch == 1);
  }
  SECTION("none") {
    auto stream = setup.open(setup.file("a.jsonl", rows));
    stream.start({}, setup.schedule);
    CHECK_THROWS_WITH(stream.at(0, {}), Contains("no example is left"));
  }
}

TEST_CASE("a checkpoint behind the end of the files is refused", "[stream]") {
  const Setup setup;
  auto stream = setup.open(setup.file("a.jsonl", rows_of("a", 5)));
  stream.start({.window = {0, 3}, .first_step = 6}, setup.schedule);
  CHECK_THROWS_WITH(stream.at(6, {}), Contains("the stream has 5 rows"));
}

TEST_CASE("all formats of text are streamed in the same order", "[stream]") {
  const Setup setup;
  const auto rows = rows_of("a", 9);
  std::string csv = "text\n", list;
  for (int i = 0; i < 9; ++i) {
    csv += fmt::format("\"a{}\"\r\n", i);
    list += fmt::format("{}{{\"text\": \"a{}\"}}", i ? ", " : "[", i);
  }
  const auto expected = pass_of(setup, setup.file("a.jsonl", rows), {});
  REQUIRE(expected.size() == 9);
  write_gzip(setup.dir.path("a.jsonl.gz"), rows);
  CHECK(pass_of(setup, {{.path = setup.dir.path("a.jsonl.gz")}}, {}) == expected);
  CHECK(pass_of(setup, setup.file("a.csv", csv), {}) == expected);
  CHECK(pass_of(setup, setup.file("a.json", list + "]"), {}) == expected);
}

TEST_CASE("a large file is not kept in memory while it is streamed", "[stream]") {
  const Setup setup;
  constexpr std::size_t kRows = 3000, kBytes = std::size_t{32} << 10;  // 94 MiB
  {
    std::ofstream file(setup.dir.path("a.jsonl"), std::ios::binary);
    const std::string row = "{\"text\": \"" + std::string(kBytes, 'x') + "\"}\n";
    for (std::size_t i = 0; i < kRows; ++i) file << row;
  }
  const auto resident = [] {
    std::ifstream file("/proc/self/statm");
    std::size_t all = 0, pages = 0;
    file >> all >> pages;
    return pages * 4096;
  };
  PrepareOptions options;
  options.streamed = true;
  std::vector<SourcePlan> plans;
  plans.push_back(plan_source({.path = setup.dir.path("a.jsonl")}, options, setup.encoder));
  RowStream stream(plans, {}, 1, 0);
  const auto before = resident();
  std::size_t rows = 0, most = 0;
  for (StreamRow row; stream.next(row); ++rows)
    if (rows % 100 == 0) most = std::max(most, resident());
  CHECK(rows == kRows);
  CHECK(most < before + (std::size_t{48} << 20));
}

TEST_CASE("slices, weights and mixtures of a stream", "[stream]") {
  const Setup setup;
  auto sources = setup.file("a.jsonl", rows_of("a", 400));
  sources.push_back(setup.file("b.jsonl", rows_of("b", 100))[0]);
  sources[1].mixed_as = sources[1].dataset = 1;
  SECTION("a slice takes rows of the dataset, over its files") {
    sources[1].mixed_as = sources[1].dataset = 0;
    for (auto& source : sources) source.range = {.from = 398, .to = 402};
    CHECK(pass_of(setup, sources, {}) == Texts{"a398", "a399", "b0", "b1"});
    for (auto& source : sources) source.range = {.most = 2};
    CHECK(pass_of(setup, sources, {}) == Texts{"a0", "a1"});
    sources[0].range = {.from = 10, .percent = true};
    CHECK_THROWS_WITH(pass_of(setup, sources, {}), Contains("train[:1000]"));
  }
  SECTION("weights repeat rows, or take a share that differs between passes") {
    sources[0].weight = 0.5;
    sources[1].weight = 2;
    const auto texts = pass_of(setup, sources, {});
    CHECK(count_of(texts, 'b') == 200);
    CHECK(std::abs(count_of(texts, 'a') - 200) < 50);
    CHECK(pass_of(setup, sources, {}, 1) != texts);
  }
  SECTION("interleaved until the first one ends") {
    const auto texts = pass_of(
        setup, sources, {.strategy = MixStrategy::interleave_under, .probabilities = {1, 1}});
    CHECK(count_of(texts, 'b') == 100);
    CHECK(std::abs(count_of(texts, 'a') - 100) < 50);
  }
  SECTION("interleaved until all were read, with repetition") {
    const auto texts = pass_of(setup, sources,
                               {.strategy = MixStrategy::interleave_over, .probabilities = {2, 2}});
    CHECK(count_of(texts, 'a') == 400);
    CHECK(std::abs(count_of(texts, 'b') - 400) < 100);
  }
  SECTION("interleaved until all were read once") {
    auto texts = pass_of(setup, sources, {.strategy = MixStrategy::interleave_once});
    CHECK(count_of({texts.begin(), texts.begin() + 100}, 'b') > 20);
    CHECK(count_of(texts, 'a') == 400);
    CHECK(count_of(texts, 'b') == 100);
  }
}

TEST_CASE("an epoch of interleaved datasets has their ratio", "[mixture]") {
  const auto both = [](double a, double b, MixStrategy strategy,
                       std::vector<double> probabilities) {
    std::vector<Selection> selections{all_of(static_cast<std::uint32_t>(a))[0],
                                      all_of(static_cast<std::uint32_t>(b))[0]};
    const std::vector<std::size_t> datasets{0, 1};
    interleave(selections, datasets, {.strategy = strategy, .probabilities = probabilities});
    return std::pair(selections[0].weight, selections[1].weight);
  };
  using enum MixStrategy;
  CHECK(both(400, 100, interleave_under, {}) == std::pair(0.25, 1.0));
  CHECK(both(400, 100, interleave_over, {}) == std::pair(1.0, 4.0));
  CHECK(both(400, 100, interleave_under, {0.75, 0.25}) == std::pair(0.75, 1.0));
  CHECK(both(400, 100, interleave_once, {}) == std::pair(1.0, 1.0));
  CHECK(both(400, 100, concat, {}) == std::pair(1.0, 1.0));
  CHECK_THROWS_WITH(both(400, 0, interleave_over, {}), Contains("dataset 2 of 2 has no example"));
  CHECK_THROWS_WITH(both(4, 4, interleave_over, {1, 0}), Contains("need numbers above 0"));
  CHECK_THROWS_WITH(both(4, 4, interleave_over, {1}), Contains("1 numbers for 2 datasets"));
}
