#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runtime/telemetry/report.hpp"

namespace mgpu::telemetry {

using Values = std::map<std::string, double>;

// What transformers' trainers log of a step, by their names: loss, grad_norm, learning_rate, and
// whatever the recipe adds.
Values logged_values(const StepReport& report);

// What is measured beside it: tokens per second, TFLOP/s, memory and the like. What is not known is
// left out.
Values measured_values(const StepReport& report);

// Whether measured_values uses this name.
bool is_measured(const std::string& name);

// The names of an evaluation as transformers has them: each begins with "eval_".
Values eval_values(const Values& metrics);

// The end of a run: train_runtime, train_samples_per_second, train_steps_per_second, train_loss,
// total_flos, epoch and more.
Values summary_values(const Summary& summary);

// "train/loss", "eval/loss": what TensorBoard and wandb call a value that a log calls "loss",
// "eval_loss".
std::string tag_of(const std::string& name);

}  // namespace mgpu::telemetry
