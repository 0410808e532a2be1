#pragma once

#include <cstdint>
#include <vector>

#include "runtime/profiling/span.hpp"

namespace mgpu::profiling {

// Collects the ranges of all threads between start_range_log() and stop_range_log(). A range that
// begins before or ends after is left out. One log at a time.
void start_range_log();
void begin_step_in_range_log(std::int64_t step);  // ranges that begin from now on are of this step
std::vector<Span> stop_range_log();

// For Range.
bool range_log_is_on() noexcept;
std::int64_t range_log_clock() noexcept;  // nanoseconds of a clock that never jumps; above 0
void log_range(const char* name, std::int64_t begin_ns) noexcept;

}  // namespace mgpu::profiling
