#pragma once

#include "runtime/train/learner.hpp"

namespace mgpu::train {

// Turns signals into requests that training carries out at the next step, or between two of them:
// SIGTERM, SIGINT and SIGHUP request a checkpoint and a stop, SIGUSR1 requests a checkpoint. A
// second SIGINT ends the process at once, as users expect. At most one object may exist at a time.
//
// SIGUSR1 is handled from construction on. The other signals keep their default action, which ends
// the process, until defer() is called: before training there is nothing to save, and nothing
// checks for requests.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // From now on the stop signals are handled at the next step. A signal that the process ignores,
  // such as SIGHUP under nohup, stays ignored.
  void defer();

  // The requests since the last call. A stop request persists: every later call returns it again.
  Requests take();
  int signal() const;  // the signal that requested the stop; 0: none
};

}  // namespace mgpu::train
