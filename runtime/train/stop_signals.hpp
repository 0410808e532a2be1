#pragma once

#include "runtime/train/learner.hpp"

namespace mgpu::train {

// SIGTERM, SIGINT and SIGHUP ask for a checkpoint and the end, SIGUSR1 for a checkpoint: they are
// taken at the next step. A second SIGINT ends at once, as a person expects. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // What has been asked for since the last call; a wish to end stays.
  Wishes take();
  int signal() const;  // the one that asked for the end; 0: none
};

}  // namespace mgpu::train
