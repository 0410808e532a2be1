#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/base/unique_fd.hpp"
#include "rendezvous/contract.hpp"

namespace mgpu::train {

// Connects to the launcher's socket "@NAME"; no descriptor if there is nobody.
rendezvous::UniqueFd connect_to_launcher(const std::string& address);
// Sends the whole text; false if the connection is gone.
bool send_all(int fd, std::string_view text);

// From now on this process ends at once when its launcher reports that another rank has failed (a
// signal only requests a checkpoint, which would need all ranks), and reports to its launcher on
// request in which collective it is. Does nothing without a launcher.
void obey_launcher(const rendezvous::Contract& contract);

// Sends the heartbeats of this rank to the launcher, which learns from them whether a
// restarted job makes progress, that a job hangs, and which rank is slow. Another thread sends the
// newest state, every half second at most; nothing here waits for it or for the launcher.
class StepReports {
 public:
  // The phase is "loading" until the first report().
  explicit StepReports(const rendezvous::Contract& contract);
  ~StepReports();
  StepReports(const StepReports&) = delete;
  StepReports& operator=(const StepReports&) = delete;

  // `step` steps are completed. `waited_seconds` is how long this rank has waited for other ranks
  // since its start.
  void report(std::int64_t step, double waited_seconds);

  // While it exists the rank does something that takes longer than a step. Scopes may be nested.
  class Phase {
   public:
    Phase(StepReports& reports, const char* name)
        : reports_(reports), outer_(reports.enter(name)) {}
    ~Phase() { reports_.enter(outer_); }
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;

   private:
    StepReports& reports_;
    const char* outer_;
  };

 private:
  struct State;

  const char* enter(const char* phase);

  std::shared_ptr<State> state_;  // null: no launcher
};

}  // namespace mgpu::train
