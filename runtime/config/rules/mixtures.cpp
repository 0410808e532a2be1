// Rules about mixtures and streams of datasets.

#include <fmt/format.h>

#include "runtime/config/rules/rules.hpp"

namespace mgpu::train {
namespace {

void mixture_rule(Reading& reading) {
  const auto& config = reading.config;
  const bool is_concat = config.mix_strategy == MixStrategy::concat;
  const auto datasets = config.dataset_name.size();
  if (const auto* probs = reading.find("interleave_probs");
      probs && !config.interleave_probs.empty()) {
    if (is_concat)
      reading.error(
          *probs,
          "has no effect with mix_strategy: concat; set mix_strategy: interleave_under or "
          "interleave_over");
    else if (config.interleave_probs.size() != datasets)
      reading.error(*probs, fmt::format("has {} number{}, but dataset_name has {} dataset{}",
                                        config.interleave_probs.size(),
                                        config.interleave_probs.size() == 1 ? "" : "s", datasets,
                                        datasets == 1 ? "" : "s"));
  }
  if (is_concat) return;
  for (const auto& source : config.dataset_name)
    if (const auto* strategy = reading.find("mix_strategy"); source.weight != 1 && strategy)
      return reading.error(*strategy,
                           fmt::format("contradicts the weight of {}; use either weights or "
                                       "interleave_probs",
                                       source.path));
}

void streaming_rule(Reading& reading) {
  const auto& config = reading.config;
  const auto* streaming = reading.find("streaming");
  const auto* buffer = reading.find("buffer_size");
  if (!streaming || !config.streaming) {
    if (buffer) reading.note(*buffer, "has no effect without streaming: true");
    return;
  }
  if (config.task == Task::grpo)
    return reading.note(*streaming,
                        "has no effect with GRPO: prompts are read before the first step");
  if (config.max_steps <= 0)
    reading.error(*streaming, "requires max_steps: the number of rows of a stream is not known");
  if (config.dataset_exact_deduplication)
    reading.error(*streaming,
                  "cannot compare rows with those of earlier windows; remove "
                  "dataset_exact_deduplication");
  if (config.val_set_size > 0)
    reading.error(
        *streaming,
        "does not hold out rows for evaluation; set eval_dataset instead of val_set_size");
}

}  // namespace

void mixture_rules(Reading& reading) {
  mixture_rule(reading);
  streaming_rule(reading);
}

}  // namespace mgpu::train
