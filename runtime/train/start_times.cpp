#include "runtime/train/start_times.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <sstream>
#include <string>

#include "rendezvous/base/small_file.hpp"

namespace mgpu::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kStartTimeField = 22;   // of /proc/PID/stat
constexpr double kOldestStart = 600;  // what is older than this at program start is no start time

// How long ago the kernel created this process; 0 if this is unknown.
double age_at_program_start() {
  const auto stat = rendezvous::read_kernel_file("/proc/self/stat").value_or("");
  const auto name_end = stat.rfind(')');  // the name may contain blanks
  if (name_end == stat.npos) return 0;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < kStartTimeField; ++field) fields >> skipped;
  double ticks = 0;
  if (!(fields >> ticks)) return 0;
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  const double age = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 -
                     ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return age >= 0 && age < kOldestStart ? age : 0;
}

// Initialized when the libraries are loaded and main() has not begun.
const double kAgeAtProgramStart = age_at_program_start();
const Clock::time_point kProgramStart = Clock::now();

}  // namespace

double process_age() {
  return kAgeAtProgramStart + std::chrono::duration<double>(Clock::now() - kProgramStart).count();
}

StartTimes::StartTimes() {
  add("libraries", 0, kAgeAtProgramStart);
  add("recipe", kAgeAtProgramStart, process_age());
}

void StartTimes::add(const char* part, double begin, double end) {
  const std::lock_guard lock(mutex_);
  parts_.push_back({part, begin, end});
}

void StartTimes::begin_first_step() {
  first_step_begins_ = process_age();
}

telemetry::StartReport StartTimes::end_first_step() {
  const double now = process_age();
  add("first step", first_step_begins_, now);
  first_step_begins_ = -1;
  telemetry::StartReport report{.seconds = now, .parts = {}};
  const std::lock_guard lock(mutex_);
  report.parts = std::move(parts_);
  parts_.clear();
  std::ranges::stable_sort(report.parts, {}, &telemetry::StartPart::begin);
  return report;
}

StartTimes::Scope::Scope(StartTimes& times, const char* part)
    : times_(times), part_(part), begin_(process_age()) {}

StartTimes::Scope::~Scope() {
  times_.add(part_, begin_, process_age());
}

}  // namespace mgpu::train
