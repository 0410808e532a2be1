#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/profiling/span.hpp"

namespace mgpu::profiling {

struct TraceFacts {
  int rank = 0, world = 1;
  std::int64_t main_thread = 0;  // as in Span
};

// A trace in Chrome's JSON format, which Perfetto and chrome://tracing show: a complete event
// ("ph": "X") for each span, with the rank as its process; one lane for each thread, in order of
// first ranges, and after them one for each stream. A range has its step in "args".
std::string chrome_trace(std::vector<Span> spans, const TraceFacts& facts);

}  // namespace mgpu::profiling
