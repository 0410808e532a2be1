#pragma once

#include <signal.h>

#include <chrono>
#include <thread>

#include "rendezvous/base/exit_status.hpp"
#include "rendezvous/base/input_error.hpp"
#include "runtime/commands/report_errors.hpp"
#include "runtime/config/planning/memory_advice.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/train/failure_report.hpp"
#include "runtime/train/session.hpp"
#include "runtime/train/stop_signals.hpp"

namespace mgpu::recipes {

// Runs a trainer from setup to finish and returns the exit status. `advance` continues training and
// returns whether more is left. An error ends the process at once, before the trainer closes its
// connections: the launcher has to see this rank fail before those that it takes along. After
// running out of memory the message advises what to change.
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
  } catch (const train::RecipeError& e) {
    refuse(e.lines());
  } catch (const rendezvous::InputError& e) {
    refuse({e.what()});
  } catch (const std::exception& e) {
    train::fail(train::out_of_memory_text(e.what(), trainer.config(), ranks, trainer.memory_plan())
                    .value_or(e.what()));
  }
  if (trainer.end_reason() != train::EndReason::stopped) return 0;
  // A stopped run has saved a checkpoint and returns the status of a process killed by the signal.
  // If the signal reached another rank only, that rank is the first to exit: the launcher then ends
  // this one.
  if (signals.signal() == 0) std::this_thread::sleep_for(std::chrono::seconds(2));
  return exit_status::of_signal(signals.signal() != 0 ? signals.signal() : SIGTERM);
}

}  // namespace mgpu::recipes
