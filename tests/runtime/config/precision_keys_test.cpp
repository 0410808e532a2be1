// The keys of the precision and of loss scaling.

#include <string>

#include <fmt/format.h>

#include "tests/runtime/config/short_recipe.hpp"

using namespace mgpu::train;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

TEST_CASE("several keys set the precision", "[recipe]") {
  struct Case {
    const char* lines;
    Dtype dtype;
  };
  auto [lines, dtype] = GENERATE(values<Case>({{"", Dtype::automatic},
                                               {"bf16: true", Dtype::bf16},
                                               {"bf16: auto", Dtype::automatic},
                                               {"bf16: false", Dtype::fp32},
                                               {"bf16: false\nfp16: true", Dtype::fp16},
                                               {"fp16: true", Dtype::fp16},
                                               {"fp16: false", Dtype::automatic},
                                               {"torch_dtype: bfloat16", Dtype::bf16},
                                               {"dtype: torch.float16", Dtype::fp16},
                                               {"dtype: float32", Dtype::fp32},
                                               {"dtype: float32\nbf16: true", Dtype::bf16},
                                               {"dtype: bfloat16\nbf16: false", Dtype::bf16},
                                               {"dtype: auto\nbf16: true", Dtype::bf16},
                                               {"mixed_precision: bf16", Dtype::bf16},
                                               {"mixed_precision: fp16", Dtype::fp16},
                                               {"mixed_precision: 'no'", Dtype::fp32},
                                               {"enable_mixed_precision: True", Dtype::automatic},
                                               {"enable_mixed_precision: false", Dtype::fp32}}));
  CAPTURE(lines);
  CHECK(with(std::string(lines) + "\n").dtype == dtype);
}

TEST_CASE("contradictory precisions are refused", "[recipe]") {
  CHECK(mistake("bf16: true\nfp16: true\n") == "f:4: fp16: contradicts bf16 (f:3); keep one");
  CHECK(mistake("dtype: float16\nbf16: true\n") == "f:4: bf16: contradicts dtype (f:3); keep one");
  CHECK_THAT(mistake("dtype: int8\n"), Contains("need one of auto, bf16, fp16, fp32, not int8"));
}

TEST_CASE("a loss scale is fixed by a number above 0 and else dynamic", "[recipe]") {
  CHECK(with("fp16: true\n").loss_scale == 0);
  for (const auto* dynamic : {"0", "dynamic"})
    CHECK(with(fmt::format("fp16: true\nloss_scale: {}\n", dynamic)).loss_scale == 0);
  CHECK(with("fp16: true\nloss_scale: 128\n").loss_scale == 128);
  CHECK_THAT(mistake("fp16: true\nloss_scale: -1\n"), Contains("f:4: loss_scale: need"));
  CHECK_THAT(mistake("fp16: true\nloss_scale: soon\n"), Contains("f:4: loss_scale: need"));
  CHECK_THAT(mistake("fp16: true\ninitial_scale_power: 200\n"),
             Contains("at least 0 and at most 126"));
  CHECK_THAT(mistake("fp16: true\nloss_scale_window: 0\n"), Contains("loss_scale_window: need"));
  CHECK(mistake("fp16: true\nmin_loss_scale: 1000000\n") ==
        "f:4: min_loss_scale: 1000000 is above the initial loss scale, 2^16");
}

TEST_CASE("gradients in bf16 beside fp16 are refused", "[recipe]") {
  CHECK(mistake("fp16: true\ngrad_dtype: bf16\n") ==
        "f:4: grad_dtype: must be fp32 beside fp16; remove it");
  CHECK(with("fp16: true\ngrad_dtype: fp32\n").grad_dtype == "fp32");
}

TEST_CASE("keys of loss scaling without fp16 are noted", "[recipe]") {
  const auto config = with("bf16: true\nmin_loss_scale: 2\nloss_scale: 8\n");
  CHECK(noted(config, "have no effect without fp16: true"));
  CHECK(!noted(with("fp16: true\nloss_scale: 8\n"), "no effect"));
}
