#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "rendezvous/contract.hpp"

namespace mgpu::train {

// This process's part in the replacement of a lost rank by a new process, which its launcher
// decides (docs/launcher.md, "Replacing a lost rank"): tells the launcher when it can take part,
// and receives the launcher's requests. Does nothing without a launcher.
class PeerReplacement {
 public:
  // `lost` is called from another thread when a peer was lost while this process was ready. It may
  // be called until the process ends.
  PeerReplacement(const rendezvous::Contract& contract, std::function<void()> lost);

  // Whether this process can go on with a new peer from now on. A request that arrives while it is
  // not ready ends the process: the launcher then restarts all ranks.
  void set_ready(bool ready);
  // Waits for a request, at most this long and only while ready; true if one has arrived.
  bool requested(std::chrono::milliseconds limit) const;
  // The number of the replacement that was requested. This process is no longer ready. Call only
  // after requested() has returned true.
  int take();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread that reads requests
};

}  // namespace mgpu::train
