#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/base/unique_fd.hpp"
#include "rendezvous/contract.hpp"

namespace mgpu::train {

// Connects to the launcher's socket "@NAME"; no descriptor if there is nobody.
rendezvous::UniqueFd connect_to_launcher(const std::string& address);
// Sends the whole text; false if the connection is gone.
bool send_all(int fd, std::string_view text);

// From now on this process ends at once when its launcher says that another rank has failed: a
// signal only requests a checkpoint, which would need all ranks. Does nothing without a launcher.
void obey_abort_orders(const rendezvous::Contract& contract);

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
