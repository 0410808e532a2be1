#include "runtime/profiling/chrome_trace.hpp"

#include <nlohmann/json.hpp>

#include "tests/support/catch.hpp"

using namespace mgpu::profiling;
using nlohmann::json;

namespace {

constexpr std::int64_t kEraNs = 90LL * 24 * 3600 * 1'000'000'000;
constexpr std::int64_t kNow = 200 * kEraNs;

std::vector<json> events(const std::vector<Span>& spans, const std::string& kind,
                         const TraceFacts& facts = {.rank = 3, .world = 4, .main_thread = 70}) {
  std::vector<json> chosen;
  const auto trace = json::parse(chrome_trace(spans, facts));
  for (const auto& event : trace.at("traceEvents"))
    if (event.at("ph") == kind) chosen.push_back(event);
  return chosen;
}

}  // namespace

TEST_CASE("a span is a complete event of its rank, in microseconds", "[chrome_trace]") {
  const auto all = events({{.name = "forward",
                            .begin_ns = kNow + 1'234'567,
                            .end_ns = kNow + 2'234'568,
                            .thread = 70,
                            .step = 12}},
                          "X");
  CHECK(all == std::vector<json>{{{"ph", "X"},
                                  {"name", "forward"},
                                  {"cat", "range"},
                                  {"pid", 3},
                                  {"tid", 0},
                                  {"ts", 1234.567},
                                  {"dur", 1000.001},
                                  {"args", {{"step", 12}}}}});
}

TEST_CASE("threads and streams have lanes and names of their own", "[chrome_trace]") {
  const std::vector<Span> spans{
      {.name = "gemm", .begin_ns = kNow + 4, .end_ns = kNow + 5, .gpu = 1, .stream = 7},
      {.name = "copy", .begin_ns = kNow + 5, .end_ns = kNow + 6, .gpu = 1, .stream = 70},
      {.name = "reward", .begin_ns = kNow + 1, .end_ns = kNow + 2, .thread = 99},
      {.name = "step", .begin_ns = kNow + 3, .end_ns = kNow + 9, .thread = 70}};
  std::map<std::string, int> lanes;
  for (const auto& event : events(spans, "X")) lanes[event.at("name")] = event.at("tid");
  CHECK(lanes ==
        std::map<std::string, int>{{"step", 0}, {"reward", 1}, {"gemm", 1000}, {"copy", 1001}});
  std::map<int, std::string> names;
  for (const auto& event : events(spans, "M"))
    if (event.at("name") == "thread_name") names[event.at("tid")] = event.at("args").at("name");
  CHECK(names == std::map<int, std::string>{{0, "main thread"},
                                            {1, "thread 99"},
                                            {1000, "GPU 1 stream 7"},
                                            {1001, "GPU 1 stream 70"}});
}

TEST_CASE("of spans that begin together the outer one comes first", "[chrome_trace]") {
  const std::vector<Span> spans{{.name = "inner", .begin_ns = kNow, .end_ns = kNow + 5},
                                {.name = "outer", .begin_ns = kNow, .end_ns = kNow + 9}};
  const auto all = events(spans, "X");
  REQUIRE(all.size() == 2);
  CHECK(all.front().at("name") == "outer");
}

TEST_CASE("all ranks count time from the same moment", "[chrome_trace]") {
  const auto base = [](std::int64_t begin_ns) {
    const auto text =
        chrome_trace({{.name = "step", .begin_ns = begin_ns, .end_ns = begin_ns}}, {});
    return json::parse(text).at("baseTimeNanoseconds").get<std::int64_t>();
  };
  CHECK(base(kNow + 1) == kNow);
  CHECK(base(kNow + kEraNs - 1) == kNow);
}

TEST_CASE("a name that is not UTF-8 or has quotes does not break the file", "[chrome_trace]") {
  const auto all =
      events({{.name = "a\"\xff\n", .begin_ns = kNow, .end_ns = kNow + 1, .gpu = 0}}, "X");
  REQUIRE(all.size() == 1);
  CHECK(all.front().at("name") == "a\"\xef\xbf\xbd\n");
}

TEST_CASE("a trace without spans is valid and names its rank", "[chrome_trace]") {
  const auto trace = json::parse(chrome_trace({}, {.rank = 1, .world = 2}));
  CHECK(trace.at("distributedInfo") == json{{"rank", 1}, {"world_size", 2}});
  CHECK(trace.at("traceEvents").front().at("args").at("name") == "rank 1 of 2");
}
