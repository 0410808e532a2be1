// The keys of the optimizer, of the batch size and of the schedule of the learning rate.

#include <string>

#include <fmt/format.h>

#include "tests/runtime/config/short_recipe.hpp"

using namespace mgpu::train;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

TEST_CASE("optimizer_config has the arguments of PyTorch's AdamW", "[recipe]") {
  for (const char* lines : {"optimizer_config: {class: AdamW, lr: 3e-5, weight_decay: 0.01}\n",
                            "optimizer_config:\n  class: torch.optim.AdamW\n"
                            "  kwargs: {lr: 3e-5, weight_decay: 0.01}\n",
                            "optimizer_config:\n  'class': torch.optim.AdamW\n"
                            "  'kwargs': {'lr': 3e-5, 'weight_decay': 0.01}\n"}) {
    CAPTURE(lines);
    const auto config = with(lines);
    CHECK(config.optim == "adamw_torch_fused");
    CHECK(config.learning_rate == 3e-5);
    CHECK(config.weight_decay == .01);
  }
  CHECK_THAT(mistake("optimizer_config: {class: torch.optim.SGD}\n"), Contains("not supported"));
  CHECK_THAT(mistake("optimizer_config: {kwargs: {momentun: 1}}\n"), Contains("unknown key"));
}

TEST_CASE("gradient_aggregation accepts the enumerators of AggregationMethod", "[recipe]") {
  struct Case {
    const char* word;
    Aggregation meant;
  };
  const auto [word, meant] = GENERATE(values<Case>({{"AggregationMethod.MEAN", Aggregation::mean},
                                                    {"MEAN", Aggregation::mean},
                                                    {"WEIGHTED", Aggregation::weighted},
                                                    {"WEIGHTED_MEAN", Aggregation::weighted},
                                                    {"MEDIAN", Aggregation::median},
                                                    {"SUM", Aggregation::sum}}));
  CHECK(with(std::string("aggregation_method: ") + word + "\n").gradient_aggregation == meant);
  CHECK_THAT(mistake("aggregation_method: AggregationMethod.MODE\n"),
             Contains("need one of weighted, mean, median, sum"));
}

TEST_CASE("the meaning of batch_size depends on micro_batch_size", "[recipe]") {
  CHECK(with("batch_size: 4\n").per_device_train_batch_size == 4);
  CHECK(with("micro_batch_size: 4\n").per_device_train_batch_size == 4);
  const auto both = with("batch_size: 128\nmicro_batch_size: 4\n");
  CHECK(both.global_batch_size == 128);
  CHECK(both.per_device_train_batch_size == 4);
  CHECK(with("global_batch_size: 64\n").global_batch_size == 64);
  CHECK_THAT(mistake("batch_size: 4\nper_device_train_batch_size: 4\n"), Contains("contradicts"));
  CHECK_THAT(mistake("batch_size: 0\n"), Contains("need a number at least 1"));
  const auto set = with("batch_size: 128\nmicro_batch_size: 4\n", {.set = {"micro_batch_size=8"}});
  CHECK(set.global_batch_size == 128);
  CHECK(set.per_device_train_batch_size == 8);
}

TEST_CASE("warm-up is steps or a fraction, and a zero does not contradict the other", "[recipe]") {
  CHECK(with("warmup_ratio: 0.03\n").warmup_steps == .03);
  CHECK(with("warmup_steps: 10\n").warmup_steps == 10);
  CHECK(with("warmup_steps: 0\nwarmup_ratio: 0.1\n").warmup_steps == .1);
  CHECK_THAT(mistake("warmup_steps: 5\nwarmup_ratio: 0.1\n"), Contains("contradicts warmup_steps"));
  CHECK(with("warmup_ratio: 0.1\n", {.set = {"warmup_steps=7"}}).warmup_steps == 7);
  CHECK_THAT(mistake("warmup_ratio: 5\n"), Contains("need a fraction"));
}

TEST_CASE("schedules accept only their own parameters", "[recipe]") {
  CHECK(with("lr_scheduler: cosine\ncosine_min_lr_ratio: 0.1\n").lr_scheduler_type ==
        "cosine_with_min_lr");
  CHECK_THAT(mistake("lr_scheduler_type: linear\nlr_scheduler_kwargs: {min_lr: 1}\n"),
             Contains("linear has no parameters, not min_lr"));
  CHECK_THAT(mistake("lr_scheduler_type: cosine_with_min_lr\n"),
             Contains("requires either min_lr or min_lr_rate"));
  CHECK_THAT(mistake("lr_scheduler_type: cosin\n"), Contains("need one of constant, "));
  const auto config =
      with("lr_scheduler_type: cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr_rate: .1}\n",
           {.set = {"lr_scheduler_kwargs.min_lr_rate=0.2"}});
  CHECK(config.lr_scheduler_kwargs.at("min_lr_rate") == .2);
}

TEST_CASE("optimizer names of other trainers are mapped to ours", "[recipe]") {
  CHECK(with("optim: adamw_bnb_8bit\n").optim == "adamw_8bit");
  CHECK(with("optim: adamw_torch\n").optim == "adamw_torch_fused");
  const auto paged = with("optim: paged_adamw_8bit\n");
  CHECK(paged.optim == "adamw_8bit");
  CHECK(noted(paged, "f:3: optim: runs as adamw_8bit"));
  for (const char* other : {"sgd", "adafactor", "lion_8bit", "muon"})
    CHECK_THAT(mistake(fmt::format("optim: {}\n", other)),
               Contains(fmt::format("{} is not supported; use adamw_torch_fused", other)));
  CHECK(with("optimizer_config: {class: AdamW, lr: 2e-5, weight_decay: .01}\n").weight_decay ==
        .01);
}
