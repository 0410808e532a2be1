// Uses the trainer as a C++ library: fine-tunes a model from your own program, epoch by epoch.
// Without an argument it runs a short form of the quickstart. Run directly, it is one rank; for
// several ranks:
//   mgpu-run --nproc 2 build/bin/trainer_example [RECIPE.yaml]

#include <fmt/format.h>
#include <stdlib.h>

#include <cstdio>
#include <exception>

#include "rendezvous/contract.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/train/failure_report.hpp"
#include "runtime/train/stop_signals.hpp"
#include "runtime/train/trainer.hpp"

namespace {

using namespace mgpu;

constexpr const char* kRecipe = R"(
model_size: tiny
tokenizer_path: docs/examples/tokenizer
dataset_name: docs/examples/addition.jsonl
max_length: 128
global_batch_size: 64
per_device_train_batch_size: 16
optimizer_config: {class: AdamW, kwargs: {lr: 2.0e-3, weight_decay: 0.01}}
aggregation_method: AggregationMethod.MEAN
num_train_epochs: 2
output_dir: output/trainer_example
)";

void train_as(const train::TrainConfig& config) {
  rendezvous::Contract contract;  // one rank
  if (getenv(rendezvous::variable::kRank) != nullptr)
    contract = rendezvous::Contract::from_environment(getenv);

  train::StopSignals signals;  // after defer() SIGTERM saves and stops, SIGUSR1 saves
  train::Trainer trainer(config, contract);
  trainer.set_requests([&] { return signals.take(); });

  trainer.setup();
  signals.defer();
  for (train::EpochStats epoch{.more = true}; epoch.more;) {
    epoch = trainer.train_epoch();
    // All ranks are at the same step here. The weights are in trainer.learner().shards().
    const auto stats = trainer.training_stats();
    if (stats.rank == 0)
      fmt::print(
          "rank {} of {}: step {} of {}: {} steps with {} examples in {:.2f} s ({:.3f} s each), "
          "mean loss {:.4f}\n",
          stats.rank, stats.world_size, stats.step, stats.total_steps, epoch.steps, epoch.samples,
          epoch.epoch_time, epoch.avg_step_time, epoch.avg_loss);
  }
  trainer.finish();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    train_as(argc > 1 ? train::read_recipe(argv[1]) : train::parse_recipe(kRecipe, "trainer.cpp"));
  } catch (const std::exception& e) {
    train::write_failure_report(e.what());
    std::fflush(nullptr);
    _Exit(1);  // no destructors: other ranks must not wait for this one to leave
  }
  return 0;
}
