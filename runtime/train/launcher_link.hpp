#pragma once

#include <chrono>
#include <cstdint>

#include "rendezvous/base/unique_fd.hpp"
#include "rendezvous/contract.hpp"

namespace mgpu::train {

// From now on this process ends at once when its launcher says that another rank has failed (a
// signal only requests a checkpoint, which would need all ranks), and tells its launcher on request
// in which collective it is. Does nothing without a launcher.
void obey_launcher(const rendezvous::Contract& contract);

// Tells the launcher how many steps are done, so that it knows whether a restarted job makes
// progress. Reports are at least half a second apart, and none waits for the launcher.
class StepReports {
 public:
  explicit StepReports(const rendezvous::Contract& contract);

  void report(std::int64_t step);

 private:
  using Clock = std::chrono::steady_clock;

  int rank_;
  rendezvous::UniqueFd launcher_;
  Clock::time_point last_{};
};

}  // namespace mgpu::train
