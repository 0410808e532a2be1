#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "runtime/telemetry/report.hpp"

namespace mgpu::telemetry {

using Values = std::map<std::string, double>;

// The values of a step that transformers' trainers log, under the same names: loss, grad_norm,
// learning_rate, and values that the recipe adds.
Values logged_values(const StepReport& report);

// Additional measurements: tokens per second, TFLOP/s, memory and so on. Unknown values are left
// out.
Values measured_values(const StepReport& report);

// Whether measured_values uses this name.
bool is_measured(const std::string& name);

// The values of an evaluation under transformers' names, which begin with "eval_".
Values eval_values(const Values& metrics);

// The values of a run's summary: train_runtime, train_samples_per_second, train_steps_per_second,
// train_loss, total_flos, epoch and more.
Values summary_values(const Summary& summary);

// The name of a value in TensorBoard and wandb: "train/loss" for "loss", "eval/loss" for
// "eval_loss".
std::string tag_of(const std::string& name);

}  // namespace mgpu::telemetry
