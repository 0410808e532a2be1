#include "launcher/memory/trend.hpp"

#include <vector>

#include "tests/support/catch.hpp"

using namespace mgpu::launcher;
using Catch::Matchers::Contains;
using Rule = MemoryTrend::Rule;

namespace {

constexpr double kGibibyte = 1 << 30;

// Adds a reading every 10 s and returns the texts of all warnings.
std::vector<std::string> warnings(MemoryTrend& trend, const std::vector<double>& used, double total,
                                  double start = 0) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < used.size(); ++i)
    if (const auto warning =
            trend.add({.time = std::chrono::duration<double>(start + 10.0 * double(i)),
                       .used = std::uint64_t(used[i] * kGibibyte),
                       .total = std::uint64_t(total * kGibibyte)}))
      texts.push_back(warning->text());
  return texts;
}

}  // namespace

TEST_CASE("a GPU that is filling up causes a warning before it is full", "[memory_trend]") {
  MemoryTrend gpu(Rule::growth);
  std::vector<double> used;
  for (double now = 76.7; now < 77.2; now += 0.4 / 6) used.push_back(now);
  const auto texts = warnings(gpu, used, 79.6);
  REQUIRE(texts.size() == 1);
  CHECK(texts[0] == "76.9 of 79.6 GiB, growing 0.4 GiB a minute: full in about 7 minutes");
}

TEST_CASE("a GPU whose memory is nearly all in use, but does not grow, is normal",
          "[memory_trend]") {
  MemoryTrend gpu(Rule::growth);
  CHECK(warnings(gpu, {1, 30, 78, 78.5, 78.5, 78.5, 78.5, 78.5, 78.5, 78.5}, 79.6).empty());
}

TEST_CASE("host memory causes one warning for each threshold", "[memory_trend]") {
  MemoryTrend host(Rule::level);
  SECTION("with the growth if it is known") {
    std::vector<double> used = {20, 30};
    for (double now = 44; now < 58; now += 0.5) used.push_back(now);
    const auto texts = warnings(host, used, 60);
    REQUIRE(texts.size() == 2);
    CHECK(texts[0] == "45.5 of 60.0 GiB, growing 3.0 GiB a minute: full in about 5 minutes");
    CHECK(texts[1] == "54.0 of 60.0 GiB, growing 3.0 GiB a minute: full in about 2 minutes");
  }
  SECTION("and without growth for the level alone") {
    const auto texts = warnings(host, {10, 55, 55, 55, 55, 55, 58, 55, 55}, 60);
    REQUIRE(texts.size() == 2);
    CHECK(texts[0] == "55.0 of 60.0 GiB");
    CHECK_THAT(texts[1], Contains("58.0 of 60.0 GiB"));
  }
}

TEST_CASE("memory that goes up and down does not cause a flood of warnings", "[memory_trend]") {
  MemoryTrend host(Rule::level);
  std::vector<double> used;
  for (int i = 0; i < 30; ++i) used.insert(used.end(), {56, 30});
  CHECK(warnings(host, used, 60).size() == 1);  // in ten minutes
  CHECK(warnings(host, {30, 56}, 60, 700).size() == 1);
}

TEST_CASE("the history is short, and without a known total nothing is kept", "[memory_trend]") {
  MemoryTrend host(Rule::level);
  CHECK(warnings(host, std::vector<double>(100, 1), 60).empty());
  CHECK(host.history().size() == 30);
  CHECK(host.bytes_per_minute() == 0);
  MemoryTrend unknown(Rule::level);
  CHECK_FALSE(unknown.add({.used = 5}));
  CHECK(unknown.history().empty());
}
