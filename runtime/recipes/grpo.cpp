#include "runtime/recipes/grpo.hpp"

#include "runtime/recipes/train_through.hpp"
#include "runtime/rl/grpo_trainer.hpp"

namespace mgpu::recipes {

int grpo(const train::TrainConfig& config, const rendezvous::Contract& contract) {
  rl::GrpoTrainer trainer(config, contract);
  return train_through(trainer, contract.world_size,
                       [](rl::GrpoTrainer& t) { return t.train_step(); });
}

}  // namespace mgpu::recipes
