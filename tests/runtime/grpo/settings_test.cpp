#include "runtime/config/resolve.hpp"
#include "runtime/grpo/advantages.hpp"
#include "runtime/grpo/loss_settings.hpp"
#include "tests/support/catch.hpp"

using namespace mgpu;
using namespace mgpu::grpo;

namespace {

train::TrainConfig recipe(const std::string& lines) {
  return train::parse_recipe("model_name_or_path: m\ndataset_name: d\ntask: grpo\n" + lines, "f");
}

}  // namespace

TEST_CASE("a recipe without loss keys has the default settings", "[settings]") {
  CHECK((loss_settings(recipe("")) == LossSettings{}));
  const auto advantages = advantage_options(recipe(""));
  CHECK((advantages.scale == AdvantageOptions{}.scale));
  CHECK((advantages.aggregation == AdvantageOptions{}.aggregation));
}

TEST_CASE("the recipe's loss keys set the loss settings", "[settings]") {
  const auto got = loss_settings(recipe(
      "loss_type: CISPO\nepsilon_high: 5\ndelta: 4\nbeta: 4e-2\nuse_bias_correction_kl: no\n"
      "off_policy_mask_threshold: .5\ntop_entropy_quantile: 0.2\nentropy_coef: 1e-3\n"
      "importance_sampling_level: sequence\nvllm_importance_sampling_mode: token-mask\n"
      "vllm_importance_sampling_cap: 2\nvllm_importance_sampling_clip_min: .5\n"
      "vllm_importance_sampling_correction: false\nloss_normalization: trl\nepsilon: 3e-4\n"));
  LossSettings expected{.type = train::LossType::cispo,
                        .level = train::ImportanceLevel::sequence,
                        .epsilon = 3e-4,
                        .epsilon_high = 5,
                        .delta = 4,
                        .beta = .04,
                        .bias_corrected_kl = false,
                        .off_policy_threshold = .5,
                        .top_entropy_quantile = .2,
                        .entropy_coef = 1e-3};
  expected.correct_sampler = false;
  expected.correction = train::SamplerCorrection::token_mask;
  expected.sampler_clip_max = 2;
  expected.sampler_clip_min = .5;
  expected.normalization = train::LossNormalization::trl;
  CHECK((got == expected));
}

TEST_CASE("scale_rewards can be a boolean, as in older recipes", "[settings]") {
  using train::ScaleRewards;
  CHECK((advantage_options(recipe("scale_rewards: true\n")).scale == ScaleRewards::group));
  CHECK((advantage_options(recipe("scale_rewards: False\n")).scale == ScaleRewards::none));
  CHECK((advantage_options(recipe("scale_rewards: batch\n")).scale == ScaleRewards::batch));
}

TEST_CASE("vespo corrects the sampler by token unless the recipe sets the mode", "[settings]") {
  using train::SamplerCorrection;
  CHECK((loss_settings(recipe("loss_type: vespo\n")).correction == SamplerCorrection::token_mask));
  CHECK((loss_settings(recipe("loss_type: vespo\nvllm_importance_sampling_mode: token_truncate\n"))
             .correction == SamplerCorrection::token_truncate));
}
