#pragma once

#include "runtime/train/learner.hpp"

namespace mgpu::train {

// SIGTERM, SIGINT and SIGHUP ask for a checkpoint and the end, SIGUSR1 for a checkpoint: they are
// taken at the next step. A second SIGINT ends at once, as a person expects. One at a time.
//
// SIGUSR1 is taken from the beginning. The others end the process as they do by default until
// defer() is called: before training there is nothing to save and nobody who would look.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // From now on a signal to end waits for the next step. What the process was told to ignore
  // (SIGHUP under nohup) stays ignored.
  void defer();

  // What has been asked for since the last call; a wish to end stays.
  Requests take();
  int signal() const;  // the one that asked for the end; 0: none
};

}  // namespace mgpu::train
