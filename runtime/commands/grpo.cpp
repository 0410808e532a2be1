#include "runtime/commands/grpo.hpp"

#include "runtime/commands/run_training.hpp"
#include "runtime/rl/grpo_trainer.hpp"

namespace mgpu::recipes {

int grpo(const train::TrainConfig& config, const rendezvous::Contract& contract) {
  rl::GrpoTrainer trainer(config, contract);
  return run_training(trainer, contract.world_size,
                      [](rl::GrpoTrainer& t) { return t.train_step(); });
}

}  // namespace mgpu::recipes
