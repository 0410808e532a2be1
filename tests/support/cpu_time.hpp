#pragma once

#include <ctime>

/// The CPU time of this process since the object was made: unlike wall time it does not grow while
/// the machine is busy with something else.
class CpuTime {
 public:
  /// In seconds of an uninstrumented program: sanitizers make one about ten times as slow.
  double seconds() const {
    return static_cast<double>(std::clock() - start_) / CLOCKS_PER_SEC / kSlower;
  }

 private:
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static constexpr double kSlower = 10;
#else
  static constexpr double kSlower = 1;
#endif
  std::clock_t start_ = std::clock();
};
