// Writes the files of a run of 40 steps that was resumed at step 20 after reaching step 30:
// telemetry_sample DIR.
#include <fstream>
#include <limits>

#include "runtime/telemetry/telemetry.hpp"

namespace {

using namespace mgpu::telemetry;

StepReport report_at(std::int64_t step, double loss) {
  return {.step = step,
          .total_steps = 40,
          .epoch = static_cast<double>(step) / 20,
          .loss = loss,
          .learning_rate = 1e-4 * static_cast<double>(40 - step) / 40,
          .grad_norm = step == 10 ? std::numeric_limits<double>::quiet_NaN() : 0.5,
          .tokens = 1000,
          .label_tokens = 600,
          .seconds = 0.5,
          .extra = {{"mean_token_accuracy", 0.25}}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  Options options{.output_dir = argv[1],
                  .run_name = "sample \"1\" \xF0\x9F\x9A\x80",
                  .wandb_project = "samples",
                  .report_to = {"tensorboard", "wandb"},
                  .config = "learning_rate: 1e-4\nseed: 42\n"};
  {
    Telemetry telemetry(options);
    for (int step = 5; step <= 30; step += 5) telemetry.step(report_at(step, 100));
  }
  options.resume_step = 20;
  Telemetry telemetry(options);
  for (int step = 25; step <= 40; step += 5) telemetry.step(report_at(step, 40.0 / step));
  telemetry.evaluation(40, 2, {{"loss", 0.75}, {"runtime", 1.5}});
  telemetry.finish({.step = 40,
                    .epoch = 2,
                    .train_loss = 1.25,
                    .train_runtime = 8,
                    .samples = 80,
                    .steps = 20,
                    .tokens = 4000});
  std::ofstream(options.output_dir + "/trainer_state.json")
      << trainer_state_json({.global_step = 40,
                             .max_steps = 40,
                             .epoch = 2,
                             .num_train_epochs = 2,
                             .best_metric = 0.75,
                             .best_global_step = 40},
                            telemetry.history());
  return 0;
}
