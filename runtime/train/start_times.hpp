#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include "runtime/telemetry/report.hpp"

namespace mgpu::train {

// Where the time from the start of this process to the end of its first step goes. Parts may
// overlap: any thread may measure one.
class StartTimes {
 public:
  // What has passed already: loading the libraries, then reading the recipe.
  StartTimes();

  // Calls work() and records how long it took. `part` must outlive the call.
  template <class Work>
  auto measure(const char* part, Work work) {
    const Scope scope(*this, part);
    return work();
  }

  void begin_first_step();
  bool first_step_is_running() const { return first_step_begins_ >= 0; }
  // Ends the first step and returns all parts in the order of their beginnings.
  telemetry::StartReport end_first_step();

 private:
  class Scope {
   public:
    Scope(StartTimes& times, const char* part);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    StartTimes& times_;
    const char* part_;
    double begin_;
  };

  void add(const char* part, double begin, double end);

  std::mutex mutex_;
  std::vector<telemetry::StartPart> parts_;
  double first_step_begins_ = -1;  // below 0: it is not running
};

// Seconds since this process started, as the kernel counts (hundredths).
double process_age();

}  // namespace mgpu::train
