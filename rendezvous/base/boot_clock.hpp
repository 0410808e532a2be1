#pragma once

#include <time.h>

#include <chrono>

namespace mgpu::rendezvous {

// Time since boot, including the time that the machine was suspended. CLOCK_MONOTONIC would not do:
// leases end while this machine is suspended.
struct BootClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<BootClock>;
  static constexpr bool is_steady = true;

  static time_point now() noexcept {
    timespec time{};
    ::clock_gettime(CLOCK_BOOTTIME, &time);
    return time_point(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
  }
};

}  // namespace mgpu::rendezvous
