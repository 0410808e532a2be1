#include "runtime/train/loss_scaler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace mgpu::train {
namespace {

constexpr std::int64_t kMostOverflows = 10;  // in a row at a scale that cannot shrink
constexpr double kFactor = 2;

}  // namespace

LossScaler::LossScaler(const LossScaleRule& rule) : rule_(rule) {
  state_.scale = rule.initial;
  state_.hysteresis_left = rule.hysteresis;
}

LossScaleStep LossScaler::update(bool overflow) {
  LossScaleStep step{.used = state_.scale, .fixed = !rule_.dynamic};
  if (overflow) {
    const bool can_shrink = rule_.dynamic && state_.scale > rule_.least;
    state_.overflows_at_least = can_shrink ? 0 : state_.overflows_at_least + 1;
    if (can_shrink) shrink();
    state_.clean_steps = 0;
  } else {
    state_.overflows_at_least = 0;
    if (rule_.restores_each_step) state_.hysteresis_left = rule_.hysteresis;
    if (rule_.dynamic && ++state_.clean_steps == rule_.window) {
      // The kernels compute with the scale in fp32.
      if (state_.scale * kFactor <= std::numeric_limits<float>::max()) state_.scale *= kFactor;
      state_.hysteresis_left = rule_.hysteresis;
      state_.clean_steps = 0;
    }
  }
  step.next = state_.scale;
  step.overflows_at_least = state_.overflows_at_least;
  return step;
}

void LossScaler::shrink() {
  if (state_.hysteresis_left > 1)
    --state_.hysteresis_left;
  else
    state_.scale = std::max(state_.scale / kFactor, rule_.least);
}

void LossScaler::restore(const LossScaleState& saved) {
  if (!rule_.dynamic) {
    state_.overflows_at_least = saved.overflows_at_least;
    return;
  }
  state_ = saved;
  state_.scale = std::max(saved.scale, rule_.least);
  // A window or a hysteresis that has become shorter ends with the next step.
  state_.clean_steps = std::min(saved.clean_steps, rule_.window - 1);
  state_.hysteresis_left = std::clamp<std::int64_t>(saved.hysteresis_left, 1, rule_.hysteresis);
}

bool gives_up(const LossScaleStep& step, bool stops_at_once) {
  return step.overflows_at_least >= (stops_at_once ? 1 : kMostOverflows);
}

std::string overflow_note(std::int64_t number, const LossScaleStep& step) {
  const auto text =
      fmt::format("step {}: the gradient is not finite at loss scale {}; the step is skipped",
                  number, step.used);
  return step.changed() ? fmt::format("{}, the loss scale is now {}", text, step.next) : text;
}

std::string overflow_error(std::int64_t number, const LossScaleStep& step) {
  const auto what = fmt::format(
      "step {}: the gradient is not finite at the {} loss scale {} (steps in a row: {})", number,
      step.fixed ? "fixed" : "smallest", step.used, step.overflows_at_least);
  return what + (step.fixed ? "; set loss_scale: dynamic, or bf16: true if the GPU supports it"
                            : "; lower learning_rate, check the data, or set bf16: true if the GPU "
                              "supports it");
}

}  // namespace mgpu::train
