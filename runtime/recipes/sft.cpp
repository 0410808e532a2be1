#include "runtime/recipes/sft.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <stdexcept>

#include "runtime/config/memory_advice.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/train/stop_signals.hpp"
#include "runtime/train/trainer.hpp"

namespace mgpu::recipes {
namespace {

int train_through(train::Trainer& trainer) {
  train::StopSignals signals;
  trainer.set_wishes([&] { return signals.take(); });

  trainer.setup();
  signals.defer();
  while (trainer.train_epoch()) {
  }
  trainer.finish();

  // As if the signal had killed us, but with a checkpoint behind.
  // The signal may have come to another rank only.
  const int signo = signals.signal() != 0 ? signals.signal() : SIGTERM;
  return trainer.end() == train::End::stopped ? 128 + signo : 0;
}

}  // namespace

int sft(const train::TrainConfig& config, const rendezvous::Contract& contract) {
  train::Trainer trainer(config, contract);
  try {
    return train_through(trainer);
  } catch (const train::RecipeError&) {
    throw;
  } catch (const std::exception& e) {
    const auto text = train::out_of_memory_text(e.what(), trainer.config(), contract.world_size);
    if (!text) throw;
    throw std::runtime_error(*text);
  }
}

int tokenize(const train::TrainConfig& config) {
  train::Trainer trainer(config, {});
  trainer.open_files();
  for (const auto& line : trainer.data_lines()) fmt::print("{}\n", line);
  return 0;
}

}  // namespace mgpu::recipes
