#include <algorithm>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>

#include "runtime/data/digest.hpp"
#include "runtime/data/shard.hpp"
#include "tests/runtime/data/support.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu::data;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

namespace {

const std::string kKey(64, 'k');

std::vector<Example> some_examples(bool own_labels) {
  std::mt19937 random(1);
  std::vector<Example> out(40);
  for (std::size_t i = 1; i < out.size(); ++i)  // the first stays empty
    for (std::size_t t = random() % 50; t > 0; --t) {
      const auto id = static_cast<std::int32_t>(random() % 200000);
      out[i].ids.push_back(id);
      out[i].labels.push_back(random() % 2 ? kNoTarget : own_labels ? id / 2 : id);
    }
  return out;
}

std::string written(const std::vector<Example>& examples) {
  ShardWriter writer;
  for (std::size_t i = 0; i < examples.size(); ++i) writer.add(examples[i], i * 2);
  writer.add_bad(81, "no \n good");
  return writer.finish(kKey, 3);
}

}  // namespace

TEST_CASE("a shard returns the examples that were written", "[shard]") {
  const TempDir dir(TempDir::in_memory());
  const auto examples = some_examples(GENERATE(false, true));
  write_atomically(dir.path("s"), written(examples));
  const Shard shard(dir.path("s"), kKey, 3);
  REQUIRE(shard.size() == examples.size());
  CHECK(shard.rows() == examples.size() + 1);
  CHECK(shard.bad() == 1);
  for (std::size_t i = 0; i < examples.size(); ++i) {
    const Sequence sequence = shard[i];
    CHECK(std::vector<std::int32_t>(sequence.ids.begin(), sequence.ids.end()) == examples[i].ids);
    CHECK(shard.line(i) == i * 2);
    for (std::size_t length = 0; length <= sequence.ids.size(); ++length) {
      std::uint32_t labels = 0;
      for (std::size_t t = 1; t < length; ++t) labels += examples[i].labels[t] != kNoTarget;
      CHECK(shard.label_count(i, length) == labels);
    }
    for (std::size_t t = 0; t < sequence.ids.size(); ++t)
      CHECK(sequence.label(t) == examples[i].labels[t]);
  }
  REQUIRE(shard.notes().size() == 1);
  CHECK(shard.notes()[0].bad);
  CHECK(shard.notes()[0].line == 81);
  CHECK(shard.notes()[0].text == "no \\x0a good");
  CHECK(std::filesystem::file_size(dir.path("s")) == written(examples).size());
}

TEST_CASE("a shard cannot have more notes than are ever written", "[shard]") {
  const TempDir dir(TempDir::in_memory());
  ShardWriter writer;
  writer.add({.ids = {1, 2}, .labels = {1, 2}}, 0);
  writer.add_bad(1, std::string(400, 'x'));
  std::string bytes = writer.finish(kKey, 3);
  // As another user of a shared cache folder could: one byte for each line.
  std::fill(bytes.end() - 400, bytes.end(), '\n');
  const std::uint64_t sum = checksum(std::string_view(bytes).substr(16));
  std::memcpy(bytes.data() + 8, &sum, sizeof sum);
  write_atomically(dir.path("s"), bytes);
  CHECK(Shard(dir.path("s"), kKey, 3).notes().size() == 16);
}

TEST_CASE("a shard that is torn, damaged or of other data is rejected", "[shard]") {
  const TempDir dir(TempDir::in_memory());
  const std::string good = written(some_examples(true));
  const auto opening = [&](const std::string& bytes) {
    write(dir.path("s"), bytes);
    return Shard(dir.path("s"), kKey, 3);
  };
  CHECK_NOTHROW(opening(good));
  for (std::size_t size = 0; size < good.size(); size += size < 200 ? 1 : 97)
    CHECK_THROWS_AS(opening(good.substr(0, size)), ShardError);
  for (std::size_t byte = 0; byte < good.size(); byte += byte < 200 ? 1 : 41) {
    std::string bad = good;
    bad[byte] = static_cast<char>(bad[byte] ^ 1 << byte % 8);
    CHECK_THROWS_AS(opening(bad), ShardError);
  }
  CHECK_THROWS_AS(opening(good + '\0'), ShardError);
  write(dir.path("s"), good);
  CHECK_THROWS_WITH(Shard(dir.path("s"), std::string(64, 'j'), 3), Contains("other data"));
  CHECK_THROWS_WITH(Shard(dir.path("s"), kKey, 4), Contains("other data"));
}

TEST_CASE("a shard with a right checksum and wrong offsets is rejected", "[shard]") {
  const TempDir dir(TempDir::in_memory());
  const auto examples = some_examples(false);
  constexpr std::size_t kStarts = 144, kSum = 8, kSummedFrom = 16;
  const std::size_t counts = kStarts + 8 * (examples.size() + 1);
  const auto with = [&](std::size_t at, auto value) {
    std::string bytes = written(examples);
    std::memcpy(bytes.data() + at, &value, sizeof value);
    const std::uint64_t sum = checksum(std::string_view(bytes).substr(kSummedFrom));
    std::memcpy(bytes.data() + kSum, &sum, sizeof sum);
    write_atomically(dir.path("s"), bytes);
  };
  const auto huge = ~std::uint64_t{0} / 8;
  with(kStarts, std::uint64_t{1});
  CHECK_THROWS_WITH(Shard(dir.path("s"), kKey, 3), Contains("is damaged"));
  with(kStarts + 8 * 5, huge);
  CHECK_THROWS_WITH(Shard(dir.path("s"), kKey, 3), Contains("is damaged"));
  with(kStarts + 8 * examples.size(), huge);
  CHECK_THROWS_WITH(Shard(dir.path("s"), kKey, 3), Contains("is damaged"));
  with(counts + 4 * 3, std::uint32_t{1'000'000});
  CHECK_THROWS_WITH(Shard(dir.path("s"), kKey, 3), Contains("is damaged"));
  with(kSum, std::uint64_t{0});  // nothing but the checksum, which is computed again
  CHECK(Shard(dir.path("s"), kKey, 3).size() == examples.size());
}

TEST_CASE("token ids of a cache no longer reach the kernels unchecked", "[shard]") {
  const TempDir dir(TempDir::in_memory());
  const auto open_with = [&](const Example& example, std::int64_t vocabulary) {
    write_atomically(dir.path("s"), written({example}));
    return Shard(dir.path("s"), kKey, 3, vocabulary);
  };
  CHECK(open_with({.ids = {1, 9}, .labels = {kNoTarget, 9}}, 10).size() == 1);
  CHECK(open_with({.ids = {1, 9}, .labels = {kNoTarget, 9}}, 0).size() == 1);
  const auto why = Contains("has token ids that the model does not have");
  CHECK_THROWS_WITH(open_with({.ids = {1, 9}, .labels = {kNoTarget, 9}}, 9), why);
  CHECK_THROWS_WITH(open_with({.ids = {1, 2}, .labels = {kNoTarget, 9}}, 9), why);
  CHECK_THROWS_WITH(open_with({.ids = {-1, 2}, .labels = {kNoTarget, 2}}, 0), why);
}

TEST_CASE("a file is written completely or not at all", "[shard]") {
  const TempDir dir(TempDir::in_memory());
  write_atomically(dir.path("s"), "old");
  write_atomically(dir.path("s"), "new");
  CHECK(contents(dir.path("s")) == "new");
  CHECK_THROWS_WITH(write_atomically(dir.path("none/s"), "x"), Contains("cannot write into"));
  const auto files = std::distance(std::filesystem::directory_iterator(dir.root()), {});
  CHECK(files == 1);
}
