#pragma once

#include <signal.h>

#include "runtime/config/planning/memory_advice.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/train/session.hpp"
#include "runtime/train/stop_signals.hpp"

namespace mgpu::recipes {

// From setup to finish; `advance` trains on and says whether something is left. Gives the exit
// status. What runs out of memory says what to change.
template <class Trainer, class Advance>
int train_through(Trainer& trainer, int ranks, Advance advance) {
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
  // As if the signal had killed us, but with a checkpoint behind.
  // The signal may have come to another rank only.
  const int signo = signals.signal() != 0 ? signals.signal() : SIGTERM;
  return trainer.end_reason() == train::EndReason::stopped ? 128 + signo : 0;
}

}  // namespace mgpu::recipes
