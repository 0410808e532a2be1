#include "runtime/commands/sft.hpp"

#include <fmt/format.h>

#include "runtime/commands/run_training.hpp"
#include "runtime/train/trainer.hpp"

namespace mgpu::recipes {

int sft(const train::TrainConfig& config, const rendezvous::Contract& contract) {
  train::Trainer trainer(config, contract);
  return run_training(trainer, contract.world_size,
                      [](train::Trainer& t) { return t.train_epoch().more; });
}

int tokenize(const train::TrainConfig& config) {
  train::Trainer trainer(config, {});
  trainer.open_files();
  for (const auto& line : trainer.data_lines()) fmt::print("{}\n", line);
  return 0;
}

}  // namespace mgpu::recipes
