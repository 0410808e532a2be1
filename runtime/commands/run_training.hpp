#pragma once

#include <signal.h>

#include "rendezvous/base/exit_status.hpp"
#include "runtime/config/planning/memory_advice.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/train/session.hpp"
#include "runtime/train/stop_signals.hpp"

namespace mgpu::recipes {

// Runs a trainer from setup to finish and returns the exit status. `advance` continues training and
// returns whether more is left. An out-of-memory error is thrown again with advice on what to
// change.
template <class Trainer, class Advance>
int run_training(Trainer& trainer, int ranks, Advance advance) {
  train::StopSignals signals;
  trainer.set_requests([&] { return signals.take(); });
  try {
    trainer.setup();
    signals.defer();
    while (advance(trainer)) {
    }
    trainer.finish();
  } catch (const train::RecipeError&) {
    throw;
  } catch (const std::exception& e) {
    const auto text = train::out_of_memory_text(e.what(), trainer.config(), ranks);
    if (!text) throw;
    throw std::runtime_error(*text);
  }
  // A stopped run has saved a checkpoint and returns the status of a process killed by the signal.
  // The signal may have reached another rank only.
  const int signo = signals.signal() != 0 ? signals.signal() : SIGTERM;
  return trainer.end_reason() == train::EndReason::stopped ? exit_status::of_signal(signo) : 0;
}

}  // namespace mgpu::recipes
