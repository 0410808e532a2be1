#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <barrier>
#include <filesystem>
#include <set>
#include <string>
#include <thread>

#include "runtime/data/prepare.hpp"
#include "runtime/data/repeated_examples.hpp"
#include "tests/runtime/data/support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::data;
using namespace mgpu::tests;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

// Every example as text, in order.
std::vector<std::string> texts(const Dataset& dataset) {
  std::vector<std::string> out;
  for (std::uint32_t i = 0; i < dataset.size(); ++i)
    out.push_back(ToyEncoder().decode(dataset[i].ids));
  return out;
}

// Every example's tokens, preceded by its length: faster than texts().
std::vector<std::int32_t> all_ids(const Dataset& dataset) {
  std::vector<std::int32_t> out;
  for (std::uint32_t i = 0; i < dataset.size(); ++i) {
    const auto ids = dataset[i].ids;
    out.push_back(static_cast<std::int32_t>(ids.size()));
    out.insert(out.end(), ids.begin(), ids.end());
  }
  return out;
}

std::string many_rows(int count) {
  std::string rows;
  for (int i = 0; i < count; ++i)
    rows += fmt::format("{{\"text\": \"row {} {}\"}}\n{}", i, std::string(i * 7 % 500, 'x'),
                        i % 9 == 0 ? "\r\n" : "");
  return rows;
}

std::vector<fs::path> cached_files(const TempDir& dir) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::recursive_directory_iterator(dir.path("cache")))
    if (entry.is_regular_file()) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

struct PrepareFixture {
  TempDir dir{TempDir::in_memory()};
  ToyEncoder encoder;
  PrepareOptions options{.cache = dir.path("cache")};

  Prepared run(const std::string& rows) {
    write(dir.path("a.jsonl"), rows);
    return again();
  }
  Prepared again() { return prepare({{dir.path("a.jsonl")}}, options, encoder); }
};

}  // namespace

TEST_CASE("rows become examples in file order", "[prepare]") {
  PrepareFixture fixture;
  const Prepared prepared = fixture.run(R"({"text": "one"}

    {"text": "two"})");
  CHECK(texts(prepared.dataset) == std::vector<std::string>{"one<eos>", "two<eos>"});
  CHECK(prepared.dataset.where(1) == fixture.dir.path("a.jsonl") + ":3");
  CHECK(prepared.dataset.lengths()[0] == 4);
  CHECK(prepared.dataset.target_counts()[0] == 3);
  REQUIRE(prepared.reports.size() == 1);
  CHECK(prepared.reports[0].rows == 2);
  CHECK(prepared.reports[0].kept == 2);
  CHECK(prepared.reports[0].tokens == 8);
  CHECK(prepared.reports[0].format == "text");
}

TEST_CASE("a file is tokenized only once", "[prepare]") {
  PrepareFixture fixture;
  const auto first = all_ids(fixture.run(many_rows(5000)).dataset);
  const int calls = fixture.encoder.encoded;
  CHECK(calls == 5000);
  CHECK((all_ids(fixture.again().dataset) == first));
  CHECK(fixture.encoder.encoded == calls);

  SECTION("also if the file is renamed") {
    fs::rename(fixture.dir.path("a.jsonl"), fixture.dir.path("b.jsonl"));
    prepare({{fixture.dir.path("b.jsonl"), 2}}, fixture.options, fixture.encoder);
    CHECK(fixture.encoder.encoded == calls);
  }
  SECTION("also with another max_length") {
    fixture.options.max_length = 50;
    CHECK(fixture.again().dataset.lengths()[100] == 50);
    CHECK(fixture.encoder.encoded == calls);
  }
  SECTION("but with another tokenizer") {
    fixture.encoder.bos = true;
    fixture.again();
    CHECK(fixture.encoder.encoded == 2 * calls);
  }
  SECTION("but with other options that matter") {
    fixture.options.rows.vocabulary = 300;
    fixture.again();
    CHECK(fixture.encoder.encoded == 2 * calls);
  }
  SECTION("but with other contents") {
    fixture.run(many_rows(5000) + "{\"text\": \"\"}\n");
    CHECK(fixture.encoder.encoded == 2 * calls + 1);
  }
}

TEST_CASE("tokens of rows that changed meanwhile are not kept under the old digest", "[prepare]") {
  // Another program overwrites the file when its first row is tokenized.
  struct Overwriting : ToyEncoder {
    std::string file;
    std::vector<std::int32_t> encode(std::string_view text, bool special) const override {
      if (encoded == 0) write(file, "{\"text\":\"three\"}\n{\"text\":\"four\"}\n");
      return ToyEncoder::encode(text, special);
    }
  };
  const bool skip_bad_rows = GENERATE(false, true);
  const TempDir dir;
  Overwriting encoder;
  encoder.file = dir.path("rows.jsonl");
  write(encoder.file, "{\"text\":\"one\"}\n{\"text\":\"two\"}\n{\"text\":\"3\"}\n");
  PrepareOptions options{.cache = dir.path("cache")};
  options.skip_bad_rows = skip_bad_rows;
  CHECK_THROWS_WITH(prepare({{encoder.file}}, options, encoder),
                    "another program changed " + encoder.file +
                        " while it was read; start again when the file is complete");
  CHECK_FALSE(fs::exists(dir.path("cache")));
}

TEST_CASE("a missing, torn or damaged piece of the cache is tokenized again", "[prepare]") {
  PrepareFixture fixture;
  const auto first = all_ids(fixture.run(many_rows(5000)).dataset);
  const auto files = cached_files(fixture.dir);
  REQUIRE(files.size() > 3);
  const std::string good = contents(files[2]);
  const int calls = fixture.encoder.encoded;
  SECTION("missing") {
    fs::remove(files[2]);
  }
  SECTION("torn") {
    fs::resize_file(files[2], fs::file_size(files[2]) / 2);
  }
  SECTION("empty") {
    write(files[2], "");
  }
  SECTION("a flipped bit") {
    std::string bad = good;
    bad[bad.size() / 2] ^= 4;
    write(files[2], bad);
  }
  SECTION("another piece's") {
    fs::copy_file(files[1], files[2], fs::copy_options::overwrite_existing);
  }
  CHECK((all_ids(fixture.again().dataset) == first));
  CHECK(fixture.encoder.encoded > calls);
  CHECK(fixture.encoder.encoded < 2 * calls);
  CHECK(contents(files[2]) == good);
}

TEST_CASE("the cache is the same for any number of ranks and threads", "[prepare]") {
  PrepareFixture alone;
  alone.options.threads = 1;
  const auto expected = all_ids(alone.run(many_rows(6000)).dataset);

  const int parts = GENERATE(2, 3, 8);
  PrepareFixture fixture;
  write(fixture.dir.path("a.jsonl"), many_rows(6000));
  std::barrier barrier(parts);
  std::vector<std::vector<std::int32_t>> seen(parts);
  {
    std::vector<std::jthread> ranks;
    for (int part = 0; part < parts; ++part)
      ranks.emplace_back([&, part] {
        PrepareOptions options = fixture.options;
        options.part = part;
        options.parts = parts;
        options.threads = 2;
        options.barrier = [&] { barrier.arrive_and_wait(); };
        seen[part] =
            all_ids(prepare({{fixture.dir.path("a.jsonl")}}, options, fixture.encoder).dataset);
      });
  }
  for (const auto& each : seen) CHECK((each == expected));
  CHECK(fixture.encoder.encoded == 6000);  // every row once, by one of them
  const auto ours = cached_files(fixture.dir), theirs = cached_files(alone.dir);
  REQUIRE(ours.size() == theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) CHECK((contents(ours[i]) == contents(theirs[i])));
}

TEST_CASE("a cache folder that is not shared by all ranks is reported after a time limit",
          "[prepare]") {
  PrepareFixture fixture;
  write(fixture.dir.path("a.jsonl"), many_rows(5000));
  fixture.options.parts = 2;
  fixture.options.barrier = [] {};
  fixture.options.visible_within = std::chrono::milliseconds(50);
  CHECK_THROWS_WITH(fixture.again(), Contains("shared by all nodes"));
  fixture.options.barrier = nullptr;
  CHECK_THROWS_AS(fixture.again(), std::logic_error);
}

TEST_CASE("prepare waits for a file that another part writes late", "[prepare]") {
  PrepareFixture other;
  const auto expected = all_ids(other.run(many_rows(5000)).dataset);
  PrepareFixture fixture;
  write(fixture.dir.path("a.jsonl"), many_rows(5000));
  fixture.options.parts = 2;
  std::jthread late;
  fixture.options.barrier = [&] {
    late = std::jthread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      // As a part writes them: under a temporary name, then renamed.
      fs::copy(other.dir.path("cache"), fixture.dir.path("coming"), fs::copy_options::recursive);
      for (const auto& folder : fs::directory_iterator(fixture.dir.path("coming"))) {
        const auto to = fs::path(fixture.dir.path("cache")) / folder.path().filename();
        fs::create_directories(to);
        for (const auto& file : fs::directory_iterator(folder))
          if (!fs::exists(to / file.path().filename()))
            fs::rename(file, to / file.path().filename());
      }
    });
  };
  CHECK((all_ids(fixture.again().dataset) == expected));
}

TEST_CASE("a bad row is reported, or skipped and counted", "[prepare]") {
  PrepareFixture fixture;
  std::string rows = many_rows(4000);
  const auto lines = std::count(rows.begin(), rows.end(), '\n');
  rows += "{\"text\": 5}\n{\"text\": \"\xff\"}\n" + many_rows(10);
  CHECK_THROWS_WITH(
      fixture.run(rows),
      Contains(fmt::format("a.jsonl:{}: the column \"text\" must be a string", lines + 1)));
  fixture.options.skip_bad_rows = true;
  const Prepared prepared = fixture.again();
  CHECK(prepared.dataset.size() == 4010);
  const SourceReport& report = prepared.reports[0];
  CHECK(report.rows == 4012);
  CHECK(report.bad == 2);
  REQUIRE(report.bad_rows.size() == 2);
  CHECK_THAT(report.bad_rows[1], Contains(fmt::format("a.jsonl:{}: invalid JSON", lines + 2)));

  SECTION("also when it was skipped before") {
    fixture.options.skip_bad_rows = false;
    const int calls = fixture.encoder.encoded;
    CHECK_THROWS_WITH(fixture.again(), Contains(fmt::format("a.jsonl:{}: the column", lines + 1)));
    CHECK(fixture.encoder.encoded == calls);
  }
  SECTION("and a row that the encoder rejects is bad too") {
    CHECK(fixture
              .run(R"({"messages": [{"role": "user", "content": ""}]}
                      {"messages": [{"role": "unknown", "content": ""}]})")
              .reports[0]
              .bad_rows.at(0) ==
          fixture.dir.path("a.jsonl") + ":2: the template knows no role unknown");
  }
}

TEST_CASE("a file without a valid row is rejected even if bad rows are skipped", "[prepare]") {
  PrepareFixture fixture;
  fixture.options.skip_bad_rows = true;
  CHECK_THROWS_WITH(fixture.run("{\"text\": 5}\n{\"text\": 6}\n"), Contains("all rows are bad"));
  CHECK_THROWS_WITH(fixture.run("x\ny\n"), Contains("a.jsonl:1: not a JSON object: x"));
  CHECK_THROWS_WITH(fixture.run(" \n\r\n"), Contains("has no rows"));
  CHECK_THROWS_WITH(fixture.run(""), Contains("has no rows"));
  CHECK_THROWS_WITH(fixture.run("{\"q\": 5}\n"),
                    Contains("cannot detect the dataset format from the columns q"));
}

TEST_CASE("examples are cut to max_length, and dropped if no label is left", "[prepare]") {
  PrepareFixture fixture;
  fixture.options.max_length = 6;
  const Prepared prepared = fixture.run(R"({"prompt": "1+1=", "completion": "2"}
      {"prompt": "1234", "completion": "56789"}
      {"prompt": "123456", "completion": "7"}
      {"prompt": "12345", "completion": "678"}
      {"prompt": "", "completion": ""})");
  CHECK(texts(prepared.dataset) == std::vector<std::string>{"1+1=2<eos>", "123456", "123456"});
  const auto counts = prepared.dataset.target_counts();
  CHECK(std::vector<std::uint32_t>(counts.begin(), counts.end()) ==
        std::vector<std::uint32_t>{2, 2, 1});
  const SourceReport& report = prepared.reports[0];
  CHECK(report.dropped == 2);  // a prompt of max_length tokens, and a row of one token
  CHECK(report.truncated == 2);
  CHECK(report.kept == 3);
  CHECK(prepared.dataset.target_tokens() == 5);
  fixture.options.max_length = 1;
  CHECK_THROWS_WITH(fixture.again(), Contains("no example is left") && Contains("max_length 1"));
}

TEST_CASE("prompts that lose their end are counted and the first is reported", "[prepare]") {
  PrepareFixture fixture;
  const Prepared prepared = fixture.run(R"({"prompt": "x", "completion": "y"}
      {"prompt": "a", "completion": "b"}
      {"prompt": "aa", "completion": "b"})");
  CHECK(prepared.reports[0].lost == 2);
  CHECK(prepared.reports[0].lost_prompt == fixture.dir.path("a.jsonl") + ":2: a");
}

TEST_CASE("rows with tools that the template does not write are counted", "[prepare]") {
  PrepareFixture fixture;
  const std::string rows =
      R"({"messages": [{"role": "user", "content": "a"}], "tools": []}
      {"messages": [{"role": "user", "content": "b"}], "tools": [{"name": "f"}]}
      {"messages": [{"role": "user", "content": "c"}], "tools": "[{\"name\": \"f\"}]"}
      {"messages": [{"role": "assistant", "content": "d", "tool_calls": [{"name": "f"}]}]}
      {"messages": [{"role": "assistant", "content": "e", "tool_calls": null}], "tools": null})";
  CHECK(fixture.run(rows).reports[0].unwritten_tools == 0);
  fixture.encoder.with_tools = false;
  fixture.encoder.name = "without tools";
  CHECK(fixture.run(rows).reports[0].unwritten_tools == 3);
  CHECK(fixture.run(rows).reports[0].unwritten_tools == 3);  // from the cache
}

TEST_CASE("several files keep their weights, formats and positions", "[prepare]") {
  PrepareFixture fixture;
  write(fixture.dir.path("a.jsonl"), R"({"text": "a"})");
  write(fixture.dir.path("b.jsonl"), R"({"messages": [{"role": "user", "content": "b"}]})"
                                     "\n"
                                     R"({"messages": [{"role": "user", "content": "c"}]})");
  const Prepared prepared =
      prepare({{fixture.dir.path("a.jsonl"), 2}, {fixture.dir.path("b.jsonl"), 0.5}},
              fixture.options, fixture.encoder);
  CHECK(texts(prepared.dataset) ==
        std::vector<std::string>{"a<eos>", "<user>b<end>", "<user>c<end>"});
  const auto ranges = prepared.dataset.ranges();
  REQUIRE(ranges.size() == 2);
  CHECK(ranges[0].weight == 2);
  CHECK(ranges[1].first == 1);
  CHECK(ranges[1].count == 2);
  CHECK(prepared.dataset.where(2) == fixture.dir.path("b.jsonl") + ":2");
  CHECK_THROWS_WITH(prepare({{fixture.dir.path("a.jsonl"), 0}}, fixture.options, fixture.encoder),
                    Contains("weight"));
  CHECK_THROWS_WITH(prepare({{fixture.dir.path("a.jsonl"), NAN}}, fixture.options, fixture.encoder),
                    Contains("weight"));
}

TEST_CASE("a cache folder that cannot be written is reported", "[prepare]") {
  PrepareFixture fixture;
  write(fixture.dir.path("file"), "");
  fixture.options.cache = fixture.dir.path("file/cache");
  CHECK_THROWS_WITH(fixture.run(many_rows(3)), Contains("file/cache") &&
                                                   Contains("dataset_prepared_path") &&
                                                   !Contains("filesystem error"));
}

TEST_CASE("a full disk is reported and leaves no files behind", "[prepare]") {
  PrepareFixture fixture;
  write(fixture.dir.path("a.jsonl"), many_rows(3000));
  // A limit on the size of files fails in write as a full disk does, but for the errno.
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto old = ::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 10000;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  std::string what;
  try {
    fixture.again();
  } catch (const std::runtime_error& e) {
    what = e.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, old);
  CHECK_THAT(what, Contains("cannot write") && Contains("File too large"));
  CHECK(cached_files(fixture.dir).empty());
}

TEST_CASE("unfinished files of a killed run are removed after a day", "[prepare]") {
  PrepareFixture fixture;
  fixture.run(many_rows(3));
  const fs::path folder = cached_files(fixture.dir).at(0).parent_path();
  write(folder / "00000.tokens.abcdef", "torn");
  write(folder / "00000.tokens.ghijkl", "being written");
  fs::last_write_time(folder / "00000.tokens.abcdef",
                      fs::file_time_type::clock::now() - std::chrono::hours(25));
  fixture.again();
  CHECK_FALSE(fs::exists(folder / "00000.tokens.abcdef"));
  CHECK(fs::exists(folder / "00000.tokens.ghijkl"));
  CHECK(fs::exists(folder / "00000.tokens"));
}

TEST_CASE("examples that equal an earlier one in tokens and loss are found", "[prepare]") {
  PrepareFixture fixture;
  const Prepared prepared = fixture.run(
      "{\"text\": \"one\"}\n{\"text\": \"two\"}\n{\"text\": \"one\"}\n{\"text\": \"one!\"}\n"
      "{\"text\": \"two\"}\n{\"text\": \"one\"}\n");
  CHECK(repeated_examples(prepared.dataset) == std::vector<std::uint32_t>{2, 4, 5});
}

TEST_CASE("examples with equal tokens and another loss are no repetition", "[prepare]") {
  PrepareFixture fixture;
  fixture.options.rows.completion_only_loss = GENERATE(true, false);
  const Prepared prepared = fixture.run(
      "{\"prompt\": \"on\", \"completion\": \"e\"}\n{\"prompt\": \"o\", \"completion\": \"ne\"}\n");
  REQUIRE(prepared.dataset.size() == 2);
  CHECK(repeated_examples(prepared.dataset).empty() == *fixture.options.rows.completion_only_loss);
}
