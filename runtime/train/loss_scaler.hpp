#pragma once

#include <cstdint>
#include <string>

namespace mgpu::train {

// How the loss scale changes. The defaults are those of torch.amp.GradScaler; `hysteresis` and
// `least` are DeepSpeed's.
struct LossScaleRule {
  bool dynamic = true;         // else the scale stays `initial`
  double initial = 65536;      // 2^16
  std::int64_t window = 2000;  // steps without overflow before the scale is doubled
  int hysteresis = 1;          // the first hysteresis - 1 overflows do not halve it
  // Whether every step without overflow restores the hysteresis; else only doubling does.
  bool restores_each_step = false;
  double least = 1;
};

// What a checkpoint holds of a loss scale.
struct LossScaleState {
  double scale = 1;
  std::int64_t clean_steps = 0;      // without overflow since the scale or an overflow last changed
  std::int64_t hysteresis_left = 1;  // overflows until one of them halves the scale
  std::int64_t overflows_at_least = 0;  // in a row, while the scale could not shrink

  friend bool operator==(const LossScaleState&, const LossScaleState&) = default;
};

// What a step did to the loss scale.
struct LossScaleStep {
  double used = 1, next = 1;            // the scale of this step, and of the next one
  std::int64_t overflows_at_least = 0;  // see LossScaleState
  bool fixed = false;

  bool changed() const { return next != used; }
};

// The factor by which the loss is multiplied before the backward pass in fp16, so that small
// gradients do not become 0. The gradients are divided by it before they are used. A step that
// overflows is skipped, and the scale shrinks. Every rank has one and updates it with the same
// outcomes, so that all have the same scale.
class LossScaler {
 public:
  explicit LossScaler(const LossScaleRule& rule);

  double scale() const { return state_.scale; }
  LossScaleStep update(bool overflow);

  const LossScaleState& state() const { return state_; }
  // Continues from a checkpoint. A fixed scale and the minimum of this run's rule still hold.
  void restore(const LossScaleState& saved);

 private:
  void shrink();

  LossScaleRule rule_;
  LossScaleState state_;
};

// Whether to end the run after a skipped step: when the scale cannot shrink and the gradient still
// is not finite, at once if `stops_at_once`, else after some such steps in a row.
bool gives_up(const LossScaleStep& step, bool stops_at_once);

// The note about a skipped step, and the error that ends the run. `number` counts from 1.
std::string overflow_note(std::int64_t number, const LossScaleStep& step);
std::string overflow_error(std::int64_t number, const LossScaleStep& step);

}  // namespace mgpu::train
