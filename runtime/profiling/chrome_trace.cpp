#include "runtime/profiling/chrome_trace.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

namespace mgpu::profiling {
namespace {

// Times are relative to a moment that is the same on all ranks, so that viewers can join their
// files. Microseconds since 1970 would have too many digits for the doubles of most readers.
constexpr std::int64_t kEraNs = 90LL * 24 * 3600 * 1'000'000'000;

constexpr int kFirstStream = 1000;  // lanes of streams; those of threads are below

// Names of kernels come from libraries: what is not UTF-8 in them is replaced.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string microseconds(std::int64_t ns) {
  return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
}

std::string name_event(const char* kind, int rank, int lane, const std::string& name) {
  return fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}})", kind,
                     rank, lane, quoted(name));
}

// The numbers of lanes, given out in the order in which threads and streams appear.
class Lanes {
 public:
  explicit Lanes(const TraceFacts& facts) : facts_(facts) {
    name_of_[lane_of({.name = {}, .thread = facts.main_thread})] = "main thread";
  }

  int lane_of(const Span& span) {
    const auto key = span.gpu < 0 ? std::tuple(-1, span.thread) : std::tuple(span.gpu, span.stream);
    const auto known = lanes_.find(key);
    if (known != lanes_.end()) return known->second;
    const int lane = span.gpu < 0 ? threads_++ : kFirstStream + streams_++;
    lanes_.emplace(key, lane);
    name_of_.emplace(lane, span.gpu < 0 ? fmt::format("thread {}", span.thread)
                                        : fmt::format("GPU {} stream {}", span.gpu, span.stream));
    return lane;
  }

  std::vector<std::string> name_events() const {
    std::vector<std::string> events{name_event(
        "process_name", facts_.rank, 0, fmt::format("rank {} of {}", facts_.rank, facts_.world))};
    for (const auto& [lane, name] : name_of_)
      events.push_back(name_event("thread_name", facts_.rank, lane, name));
    return events;
  }

 private:
  const TraceFacts& facts_;
  std::map<std::tuple<int, std::int64_t>, int> lanes_;
  std::map<int, std::string> name_of_;
  int threads_ = 0, streams_ = 0;
};

std::string step_of(const Span& span) {
  return span.step == 0 ? std::string() : fmt::format(R"(,"args":{{"step":{}}})", span.step);
}

}  // namespace

std::string chrome_trace(std::vector<Span> spans, const TraceFacts& facts) {
  // Of spans that begin together, the outer one first: viewers nest them in the order of the file.
  std::ranges::stable_sort(spans, {},
                           [](const Span& span) { return std::pair(span.begin_ns, -span.end_ns); });
  const auto base = spans.empty() ? 0 : spans.front().begin_ns / kEraNs * kEraNs;
  Lanes lanes(facts);
  std::string events;
  for (const auto& span : spans)
    events += fmt::format(
        ",\n"
        R"({{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},"ts":{},"dur":{}{}}})",
        quoted(span.name), span.gpu < 0 ? "range" : "gpu", facts.rank, lanes.lane_of(span),
        microseconds(span.begin_ns - base),
        microseconds(std::max<std::int64_t>(0, span.end_ns - span.begin_ns)), step_of(span));
  return fmt::format(R"({{"displayTimeUnit":"ms","baseTimeNanoseconds":{},)"
                     R"("distributedInfo":{{"rank":{},"world_size":{}}},"traceEvents":[)"
                     "\n{}{}\n]}}\n",
                     base, facts.rank, facts.world, fmt::join(lanes.name_events(), ",\n"), events);
}

}  // namespace mgpu::profiling
