#include <barrier>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/runtime/data/support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::data;
using namespace mgpu::tests;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> texts_in(const Dataset& dataset) {
  std::vector<std::string> out;
  for (std::uint32_t i = 0; i < dataset.size(); ++i)
    out.push_back(ToyEncoder().decode(dataset[i].ids));
  return out;
}

// Every example's tokens, preceded by its length: faster than texts_in().
std::vector<std::int32_t> ids_in(const Dataset& dataset) {
  std::vector<std::int32_t> out;
  for (std::uint32_t i = 0; i < dataset.size(); ++i) {
    const auto ids = dataset[i].ids;
    out.push_back(static_cast<std::int32_t>(ids.size()));
    out.insert(out.end(), ids.begin(), ids.end());
  }
  return out;
}

std::string many_csv_texts(int count) {
  std::string text = "text\n";
  for (int i = 0; i < count; ++i)
    text +=
        fmt::format("\"row {}\n{}\"\n", i, std::string(static_cast<std::size_t>(i) * 7 % 900, 'x'));
  return text;
}

std::vector<std::string> numbered(int first, int last) {
  std::vector<std::string> out;
  for (int i = first; i < last; ++i) out.push_back(fmt::format("{}<eos>", i));
  return out;
}

std::string numbers(int first, int last) {
  std::string rows;
  for (int i = first; i < last; ++i) rows += fmt::format("{{\"text\": \"{}\"}}\n", i);
  return rows;
}

}  // namespace

TEST_CASE("a file that is read in blocks is tokenized once, by all parts together", "[prepare]") {
  const TempDir dir(TempDir::in_memory());
  const ToyEncoder encoder;
  write(dir.path("a.csv"), many_csv_texts(12000));
  const int parts = GENERATE(1, 2, 5);
  std::barrier barrier(parts);
  const auto run = [&](int part) {
    PrepareOptions options{.cache = dir.path("cache"), .threads = 2};
    options.part = part;
    options.parts = parts;
    options.barrier = [&] { barrier.arrive_and_wait(); };
    return prepare({{dir.path("a.csv")}}, options, encoder);
  };
  const auto all = [&] {
    std::vector<std::vector<std::int32_t>> seen(static_cast<std::size_t>(parts));
    {
      std::vector<std::jthread> ranks;
      for (int part = 0; part < parts; ++part)
        ranks.emplace_back(
            [&, part] { seen[static_cast<std::size_t>(part)] = ids_in(run(part).dataset); });
    }
    for (const auto& each : seen) CHECK((each == seen[0]));
    return seen[0];
  };
  const auto first = all();
  REQUIRE(first.size() > 4000000);
  CHECK(encoder.encoded == 12000);

  SECTION("the cache needs neither the index nor all pieces") {
    fs::path index, piece;
    for (const auto& entry : fs::recursive_directory_iterator(dir.path("cache"))) {
      if (entry.path().extension() == ".index") index = entry.path();
      if (entry.path().filename() == "00001.tokens") piece = entry.path();
    }
    REQUIRE_FALSE(index.empty());
    CHECK((all() == first));
    CHECK(encoder.encoded == 12000);
    write(index, contents(index) + "9\n");
    CHECK((all() == first));
    CHECK(encoder.encoded == 12000);
    fs::remove(piece);
    CHECK((all() == first));
    CHECK(encoder.encoded > 12000);
    CHECK(encoder.encoded < 20000);
  }
}

TEST_CASE("an example knows the line that its row begins at", "[prepare]") {
  const TempDir dir(TempDir::in_memory());
  write(dir.path("a.csv"), "text\n\"a\nb\"\nc\n");
  const auto prepared = prepare({{dir.path("a.csv")}}, {.cache = dir.path("cache")}, ToyEncoder());
  CHECK(prepared.dataset.where(0) == dir.path("a.csv") + ":2");
  CHECK(prepared.dataset.where(1) == dir.path("a.csv") + ":4");
  write(dir.path("b.csv"), "text\na\n\"b\"c\n");
  CHECK_THROWS_WITH(prepare({{dir.path("b.csv")}}, {.cache = dir.path("cache")}, ToyEncoder()),
                    Contains(dir.path("b.csv") + ":3: field 1 has c behind its closing quote"));
}

TEST_CASE("a slice counts the rows of all files of a dataset", "[prepare]") {
  const TempDir dir(TempDir::in_memory());
  write(dir.path("a.jsonl"), numbers(0, 6));
  write(dir.path("b.jsonl"), numbers(6, 10));
  write(dir.path("c.jsonl"), numbers(10, 12));
  const auto of = [&](const RowRange& range) {
    std::vector<Source> sources;
    for (const auto* name : {"a.jsonl", "b.jsonl"})
      sources.push_back({.path = dir.path(name), .dataset = 0, .range = range});
    sources.push_back({.path = dir.path("c.jsonl"), .dataset = 1});
    return prepare(sources, {.cache = dir.path("cache")}, ToyEncoder());
  };
  const auto with_rest = [](int first, int last) {
    auto out = numbered(first, last);
    for (auto& text : numbered(10, 12)) out.push_back(std::move(text));
    return out;
  };
  CHECK(texts_in(of({}).dataset) == numbered(0, 12));
  CHECK(texts_in(of({.to = 50, .percent = true}).dataset) == with_rest(0, 5));
  CHECK(texts_in(of({.from = 4, .to = 8}).dataset) == with_rest(4, 8));
  CHECK(texts_in(of({.from = -3}).dataset) == with_rest(7, 10));
  CHECK(texts_in(of({.most = 7}).dataset) == with_rest(0, 7));
  CHECK(texts_in(of({.most = 99}).dataset) == with_rest(0, 10));
  const auto reports = of({.from = 4, .to = 8}).reports;
  CHECK(reports[0].unused == 4);
  CHECK(reports[1].kept == 2);
  CHECK_THROWS_WITH(of({.to = 11}), Contains("the split has 10 rows, but its slice needs 11"));
}

TEST_CASE("only the rows below a limit are read", "[prepare]") {
  const TempDir dir(TempDir::in_memory());
  const ToyEncoder encoder;
  write(dir.path("a.jsonl"), numbers(0, 100) + "broken\n");
  const auto prepared = prepare({{.path = dir.path("a.jsonl"), .range = {.most = 3}}},
                                {.cache = dir.path("cache")}, encoder);
  CHECK(texts_in(prepared.dataset) == numbered(0, 3));
  CHECK(encoder.encoded == 3);
}

TEST_CASE("each dataset has its own format and names", "[prepare]") {
  const TempDir dir(TempDir::in_memory());
  write(dir.path("a.csv"), "q,a\n1+1,2\n");
  write(dir.path("b.data"), "plain\n");
  const RowOptions pairs{.mapping = {.columns = {{"prompt", "q"}, {"completion", "a"}}}};
  const auto prepared = prepare(
      {{.path = dir.path("a.csv"), .rows = pairs}, {.path = dir.path("b.data"), .type = "text"}},
      {.cache = dir.path("cache")}, ToyEncoder());
  CHECK(texts_in(prepared.dataset) == std::vector<std::string>{"1+12<eos>", "plain<eos>"});
  CHECK(prepared.dataset.target_counts()[0] == 2);
}

TEST_CASE("segments are trained on by their labels", "[prepare]") {
  const TempDir dir(TempDir::in_memory());
  write(dir.path("a.jsonl"),
        R"({"segments":[{"label":false,"text":"q"},{"label":true,"text":"xy"}]})");
  const auto prepared =
      prepare({{dir.path("a.jsonl")}}, {.cache = dir.path("cache")}, ToyEncoder());
  CHECK(texts_in(prepared.dataset) == std::vector<std::string>{"qxy"});
  CHECK(prepared.dataset.target_counts()[0] == 2);
}
