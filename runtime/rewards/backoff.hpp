#pragma once

#include <chrono>
#include <ctime>
#include <optional>
#include <string>

// How long to wait before a server that is too busy is asked again. No I/O.
namespace mgpu::rewards {

// The waiting time that a header Retry-After requests: a number of seconds, or a date of HTTP that
// is compared with `now`. No value if it is neither.
std::optional<std::chrono::seconds> requested_wait(const std::string& retry_after, std::time_t now);

// Without such a header: before the first repetition (0) half a second, then twice as long each
// time, at most half a minute.
std::chrono::milliseconds usual_wait(int repetition);

}  // namespace mgpu::rewards
