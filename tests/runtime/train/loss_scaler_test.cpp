#include "runtime/train/loss_scaler.hpp"

#include <string>
#include <vector>

#include "tests/support/catch.hpp"

using namespace mgpu::train;
using Catch::Matchers::Contains;

namespace {

// The scale after each step; o: the step overflows, .: it does not.
std::vector<double> scales(LossScaler& scaler, const std::string& steps) {
  std::vector<double> all;
  for (const char step : steps) all.push_back(scaler.update(step == 'o').next);
  return all;
}

std::vector<double> scales(const LossScaleRule& rule, const std::string& steps) {
  LossScaler scaler(rule);
  return scales(scaler, steps);
}

using Scales = std::vector<double>;

}  // namespace

TEST_CASE("a dynamic loss scale follows the rule of GradScaler", "[scaler]") {
  // The same sequence from torch.amp.GradScaler(init_scale=64, growth_interval=3).
  CHECK(scales({.initial = 64, .window = 3}, "oo..o......o...") ==
        Scales{32, 16, 16, 16, 8, 8, 8, 16, 16, 16, 32, 16, 16, 16, 32});
  CHECK(LossScaler({}).scale() == 65536);
}

TEST_CASE("hysteresis delays the first halving until the scale is doubled", "[scaler]") {
  // DeepSpeed's DynamicLossScaler, with delayed_shift 2.
  CHECK(scales({.initial = 64, .window = 2, .hysteresis = 2}, "o.oo..oo") ==
        Scales{64, 64, 32, 16, 16, 32, 32, 16});
  CHECK(scales({.initial = 64, .window = 9, .hysteresis = 2, .restores_each_step = true},
               "o.oo.o") == Scales{64, 64, 64, 32, 32, 32});
}

TEST_CASE("a loss scale stays between its minimum and what fp32 holds", "[scaler]") {
  CHECK(scales({.initial = 3, .least = 2}, "oo") == Scales{2, 2});
  CHECK(scales({.initial = 0x1p127, .window = 1}, "..") == Scales{0x1p127, 0x1p127});
}

TEST_CASE("a fixed loss scale never changes", "[scaler]") {
  CHECK(scales({.dynamic = false, .initial = 128, .window = 1}, "o.o.") ==
        Scales{128, 128, 128, 128});
}

TEST_CASE("a run gives up after ten overflows in a row that cannot shrink the scale", "[scaler]") {
  LossScaler scaler({.initial = 4, .least = 1});
  scales(scaler, "oo");  // 4 and 2: no overflow at the minimum yet
  for (int overflow = 1; overflow <= 9; ++overflow) {
    const auto step = scaler.update(true);
    CHECK(step.overflows_at_least == overflow);
    CHECK_FALSE(gives_up(step, false));
    CHECK(gives_up(step, true));
  }
  SECTION("the tenth ends it") {
    const auto step = scaler.update(true);
    CHECK(gives_up(step, false));
    CHECK(overflow_error(12, step) ==
          "step 12: the gradient is not finite at the smallest loss scale 1 (steps in a row: 10); "
          "lower learning_rate, check the data, or set bf16: true if the GPU supports it");
  }
  SECTION("a finite gradient starts the count again") {
    CHECK_FALSE(gives_up(scaler.update(false), true));
    CHECK(scaler.update(true).overflows_at_least == 1);
  }
}

TEST_CASE("an overflow that shrinks the scale never ends a run", "[scaler]") {
  LossScaler scaler({});
  const auto step = scaler.update(true);
  CHECK_FALSE(gives_up(step, true));
  CHECK(overflow_note(3, step) ==
        "step 3: the gradient is not finite at loss scale 65536; the step is skipped, the loss "
        "scale is now 32768");
}

TEST_CASE("overflows at a fixed loss scale advise a dynamic one", "[scaler]") {
  LossScaler scaler({.dynamic = false, .initial = 128});
  const auto step = scaler.update(true);
  CHECK(overflow_note(1, step) ==
        "step 1: the gradient is not finite at loss scale 128; the step is skipped");
  CHECK_THAT(overflow_error(1, step),
             Contains("the fixed loss scale 128") && Contains("set loss_scale: dynamic"));
}

TEST_CASE("a restored loss scale continues as if it had not been saved", "[scaler]") {
  const LossScaleRule rule{.initial = 64, .window = 3, .hysteresis = 2, .least = 16};
  const std::string steps = "o..o...ooooo.o...";
  for (std::size_t cut = 0; cut < steps.size(); ++cut) {
    LossScaler whole(rule), before(rule), after(rule);
    scales(whole, steps.substr(0, cut));
    scales(before, steps.substr(0, cut));
    after.restore(before.state());
    CAPTURE(cut);
    CHECK(after.state() == before.state());
    CHECK(scales(after, steps.substr(cut)) == scales(whole, steps.substr(cut)));
  }
}

TEST_CASE("a restored loss scale obeys the rule of the resumed run", "[scaler]") {
  const LossScaleState saved{.scale = 8, .clean_steps = 500, .hysteresis_left = 4};
  LossScaler raised({.window = 100, .least = 32});
  raised.restore(saved);
  CHECK(raised.state() == LossScaleState{.scale = 32, .clean_steps = 99, .hysteresis_left = 1});
  LossScaler fixed({.dynamic = false, .initial = 128});
  fixed.restore(saved);
  CHECK(fixed.scale() == 128);
}
