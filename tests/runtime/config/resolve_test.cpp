#include "runtime/config/resolve.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "tests/runtime/config/short_recipe.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu::train;
using namespace mgpu::tests;
using Catch::Matchers::Contains;

TEST_CASE("without a file the recipe consists of --set", "[recipe]") {
  const auto config = read_recipe("", {.set = {"model_name_or_path=m", "dataset_name=d.jsonl"}});
  CHECK(config.model_name_or_path == "m");
  CHECK_THROWS_WITH(read_recipe("", {.set = {"model_name_or_path=m"}}),
                    Catch::Matchers::Contains("dataset_name is missing"));
}

TEST_CASE("an unknown key is reported with its line and the nearest key", "[recipe]") {
  CHECK(mistake("learning_rat: 1e-5\n") ==
        "f:3: unknown key learning_rat; did you mean learning_rate?");
  CHECK(mistake("mirco_batch_size: 2\n") ==
        "f:3: unknown key mirco_batch_size; did you mean micro_batch_size?");
  CHECK(mistake("zzzzzzzzzzzz: 2\n") == "f:3: unknown key zzzzzzzzzzzz");
  const auto config = with("learning_rat: 1e-5\n", {.allow_unknown = true});
  CHECK(noted(config, "f:3: unknown key learning_rat; did you mean learning_rate?"));
}

TEST_CASE("all errors are reported, not only the first", "[recipe]") {
  const auto all = mistakes("lora_r: -1\nmax_lenght: 5\nzero_stage: 4\nbf16: maybe\n");
  REQUIRE(all.size() == 4);
  for (const char* part :
       {"f:3: lora_r: need a number at least 1 and at most 4096, not -1",
        "f:4: unknown key max_lenght", "f:5: zero_stage: need one of auto, 0, 1, 2, 3",
        "f:6: bf16: need true or false, not maybe"})
    CHECK(std::any_of(all.begin(), all.end(),
                      [&](const auto& line) { return line.find(part) == 0; }));
}

TEST_CASE("keys may have dashes and capitals", "[recipe]") {
  CHECK(with("learning-rate: 1e-5\n").learning_rate == 1e-5);
  CHECK(with("BATCH_SIZE: 3\n").per_device_train_batch_size == 3);
}

TEST_CASE("a key without a value has its default", "[recipe]") {
  const auto config = with("max_length: null\nsave_total_limit: ~\nfsdp:\nlora_r: None\n");
  CHECK(config.max_length == 1024);
  CHECK(!config.use_peft);
}

TEST_CASE("two names of one setting are an error unless their values agree", "[recipe]") {
  CHECK(mistake("learning_rate: 1e-5\nlr: 2e-5\n") ==
        "f:4: lr: means the same as learning_rate (f:3); keep one");
  CHECK(with("max_length: 64\ncutoff_len: 64\n").max_length == 64);
  CHECK(mistake("completion_only_loss: true\ntrain_on_inputs: true\n") ==
        "f:4: train_on_inputs: means the same as completion_only_loss (f:3); keep one");
}

TEST_CASE("without the key the task follows from the other keys", "[recipe]") {
  CHECK(with("").task == Task::sft);
  CHECK(with("num_generations: 4\n").task == Task::grpo);
  CHECK(with("reward_funcs: [accuracy]\n").task == Task::grpo);
  CHECK(with("reward_funcs: [accuracy]\n").learning_rate == 1e-6);
  CHECK(with("task: sft\nnum_generations: 4\n").task == Task::sft);
  CHECK_THAT(mistake("task: sftt\n"), Contains("need one of sft, grpo, not sftt"));
}

TEST_CASE("values of GRPO keys are checked by type", "[recipe]") {
  CHECK(mistake("num_generations: many\n") ==
        "f:3: num_generations: need a whole number, not many");
  CHECK(mistake("task: grpo\ntemperature: hot\n") == "f:4: temperature: need a number, not hot");
}

TEST_CASE("any LoRA key turns LoRA on", "[recipe]") {
  const auto* line = GENERATE("lora_r: 4", "lora_alpha: 8", "r: 4", "target_modules: [q_proj]",
                              "use_rslora: true", "adapter_path: a", "lora_target_linear: true");
  CAPTURE(line);
  const auto config = with(std::string(line) + "\n");
  CHECK(config.use_peft);
  CHECK(noted(config, "turns LoRA on"));
}

TEST_CASE("LoRA keys contradict use_peft: false", "[recipe]") {
  CHECK(mistake("use_peft: false\nlora_r: 4\n") ==
        "f:4: lora_r: contradicts use_peft (f:3); keep one");
  const auto config = with("lora_r: 4\n", {.set = {"use_peft=false"}});
  CHECK(!config.use_peft);
  CHECK(noted(config, "have no effect: use_peft turns LoRA off"));
  CHECK(!with("finetuning_type: full\n").use_peft);
  CHECK(with("adapter: qlora\n").load_in_4bit);
  CHECK_THAT(mistake("load_in_4bit: true\nuse_peft: false\n"), Contains("add lora_r"));
  CHECK_THAT(mistake("load_in_4bit: true\nfinetuning_type: full\n"), Contains("add lora_r"));
}

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

TEST_CASE("DeepSpeed's fp16 section sets the loss scale", "[recipe]") {
  const std::string keys =
      "loss_scale: 0, loss_scale_window: 500, initial_scale_power: 12, hysteresis: 2, "
      "consecutive_hysteresis: true, min_loss_scale: 4, auto_cast: false";
  const auto config = with("deepspeed: {fp16: {enabled: true, " + keys + "}}\n");
  CHECK(config.dtype == Dtype::fp16);
  CHECK(config.loss_scale == 0);
  CHECK(config.loss_scale_window == 500);
  CHECK(config.initial_scale_power == 12);
  CHECK(config.loss_scale_hysteresis == 2);
  CHECK(config.consecutive_hysteresis);
  CHECK(config.min_loss_scale == 4);
  SECTION("enabled: auto leaves the precision to the recipe") {
    CHECK(with("deepspeed: {fp16: {enabled: auto, loss_scale: 64}}\nfp16: true\n").loss_scale ==
          64);
    CHECK(with("deepspeed: {fp16: {enabled: auto}}\nbf16: true\n").dtype == Dtype::bf16);
  }
  SECTION("a disabled section has no effect") {
    const auto off = with("deepspeed: {fp16: {enabled: false, " + keys +
                          "}, bf16: {enabled: "
                          "true}}\n");
    CHECK(off.dtype == Dtype::bf16);
    CHECK(off.min_loss_scale == 1);
    CHECK(!noted(off, "no effect"));
  }
  SECTION("auto values are those of the recipe") {
    CHECK(with("deepspeed: {fp16: {enabled: true, loss_scale: auto}}\n").loss_scale == 0);
  }
  SECTION("what cannot be honoured is refused") {
    CHECK_THAT(mistake("deepspeed: {fp16: {enabled: true, fp16_master_weights_and_grads: "
                       "true}}\n"),
               Contains("master weights and gradients are always fp32"));
    CHECK_THAT(mistake("deepspeed: {fp16: {enabled: true, los_scale: 2}}\n"),
               Contains("unknown DeepSpeed or accelerate key los_scale"));
  }
}

TEST_CASE("gradient_checkpointing is a flag or a name", "[recipe]") {
  struct Case {
    const char* line;
    Recompute meant;
  };
  auto [line, meant] =
      GENERATE(values<Case>({{"gradient_checkpointing: true", Recompute::full},
                             {"gradient_checkpointing: False", Recompute::no},
                             {"gradient_checkpointing: auto", Recompute::automatic},
                             {"use_gradient_checkpointing: \"unsloth\"", Recompute::offload},
                             {"recompute: offload", Recompute::offload},
                             {"disable_gradient_checkpointing: true", Recompute::no},
                             {"activation_offloading: true", Recompute::offload}}));
  CAPTURE(line);
  CHECK(with(std::string(line) + "\n").gradient_checkpointing == meant);
}

TEST_CASE("a kind of recomputation refines a flag that turns it on", "[recipe]") {
  for (const char* lines :
       {"use_gradient_checkpointing: \"unsloth\"\ngradient_checkpointing: true\n",
        "gradient_checkpointing: True\nuse_gradient_checkpointing: \"unsloth\"\n"})
    CHECK(with(lines).gradient_checkpointing == Recompute::offload);
  CHECK_THAT(mistake("use_gradient_checkpointing: \"unsloth\"\ngradient_checkpointing: false\n"),
             Contains("keep one"));
}

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

TEST_CASE("overrides win over the file under any alias", "[recipe]") {
  CHECK(with("learning_rate: 1e-5\n", {.set = {"lr=3e-5"}}).learning_rate == 3e-5);
  CHECK(with("", {.set = {"lr=3e-5", "learning_rate=4e-5"}}).learning_rate == 4e-5);
  CHECK(with("max_length: 64\n", {.set = {"max_length=null"}}).max_length == 1024);
  CHECK(with("", {.set = {"lora_target_modules=[q_proj, v_proj]"}}).lora_target_modules.size() ==
        2);
  CHECK(with("bf16: true\n", {.set = {"dtype=fp32"}}).dtype == Dtype::fp32);
  CHECK(mistake("", {.set = {"lrr=1"}}) == "--set: unknown key lrr; did you mean lr?");
  CHECK(mistake("", {.set = {"lr=x"}}) == "--set: lr: need a number, not x");
  CHECK(mistake("", {.set = {"lr"}}) == "--set: need KEY=VALUE, not lr");
}

TEST_CASE("DeepSpeed and accelerate files set the ZeRO stage and its buckets", "[recipe]") {
  const auto path = mgpu::tests::in_sources("tests/runtime/config/recipes/ds_zero3.json");
  const auto config = with("deepspeed: " + path + "\n");
  CHECK(config.zero_stage == 3);
  CHECK(config.max_grad_norm == .5);
  CHECK(config.reduce_bucket_size == 0);
  CHECK(with("zero_optimization: {stage: 1}\n").zero_stage == 1);
  CHECK(with("deepspeed: {zero_optimization: {stage: 2}}\n").zero_stage == 2);
  CHECK_THAT(mistake("zero_stage: 1\ndeepspeed: " + path + "\n"),
             Contains("ds_zero3.json:6: stage: means the same as zero_stage (f:3)"));
  CHECK_THAT(
      mistake("deepspeed: {zero_optimization: {stage: 2, offload_optimizer: {device: cpu}}}\n"),
      Contains("f:3: offload_optimizer: there is no offloading"));
  CHECK_THAT(mistake("deepspeed: nowhere.json\n"),
             Contains("f:3: deepspeed: cannot read nowhere.json"));
}

TEST_CASE("a DeepSpeed section that accelerate would ignore is an error", "[recipe]") {
  const std::string section = "deepspeed_config: {zero_optimization: {stage: 2}}";
  CHECK_THAT(mistake("deepspeed: {distributed_type: MULTI_GPU, " + section + "}\n"),
             Contains("f:3: distributed_type: MULTI_GPU contradicts deepspeed_config"));
  CHECK(with("deepspeed: {distributed_type: DEEPSPEED, " + section + "}\n").zero_stage == 2);
  CHECK(mistakes("deepspeed: {distributed_type: MULTI_CPU}\n").empty());
}

TEST_CASE("refused keys have a reason, and are accepted with a harmless value", "[recipe]") {
  struct Case {
    const char* asks;
    const char* nothing;
  };
  auto [asks, nothing] = GENERATE(values<Case>({
      {"deepspeed_offload: true", "deepspeed_offload: false"},
      {"sample: 100", "sample: -1"},
      {"truncation_mode: keep_end", "truncation_mode: keep_start"},
      {"bias: all", "bias: none"},
      {"average_tokens_across_devices: false", "average_tokens_across_devices: true"},
      {"quantization_method: hqq", "quantization_method: bnb"},
  }));
  CAPTURE(asks);
  CHECK_THAT(mistake(std::string(asks) + "\n"), Contains("is not supported: "));
  CHECK(mistakes(std::string(nothing) + "\n").empty());
}

TEST_CASE("dataset_name may be a path, a list, or maps with weights", "[recipe]") {
  const auto config = parse_recipe(
      "model: m\ndatasets:\n- a.jsonl\n- {path: b.jsonl, weight: 2}\ndataset_dir: data\n", "f");
  REQUIRE(config.dataset_name.size() == 2);
  CHECK(config.dataset_name[0].path == "data/a.jsonl");
  CHECK(config.dataset_name[1].weight == 2);
  CHECK(with("train_split: 0.95\n").val_set_size == .05);
  CHECK(with("validation_split_ratio: .1\n").val_set_size == .1);
  CHECK_THAT(mistake("train_split: 0.9\nval_set_size: 0.1\n"), Contains("keep one"));
  CHECK(with("packing_strategy: ffd\n").packing_strategy == "bfd");
  CHECK(with("sample_packing_sequentially: true\n").packing_strategy == "sequential");
  CHECK(with("roles_to_train: [assistant]\n").assistant_only_loss);
  CHECK(with("train_sampling_strategy: group_by_length\n").group_by_length);
}

TEST_CASE("a dataset of a hub has a subset, a split and a revision", "[recipe]") {
  const auto of = [](const std::string& dataset) {
    return parse_recipe("model: m\ndatasets: [" + dataset + "]\n", "f").dataset_name.at(0);
  };
  const auto all = of("{path: o/d, name: main, split: test, revision: v2, weight: 2}");
  CHECK(all.path == "o/d");
  CHECK(all.subset == "main");
  CHECK(all.split == "test");
  CHECK(all.revision == "v2");
  CHECK(all.weight == 2);
  CHECK(of("{subset: main, name: o/d}").subset == "main");
  CHECK(of("{name: o/d}").path == "o/d");
  CHECK(of("o/d").split == "train");
  CHECK_FALSE(of("o/d").is_path);
  CHECK(of("{path: o/d, split: 'train[:10%]', max_samples: 5}").split == "train[:10%]");
  CHECK(parse_recipe("model: m\ndataset: d\ndataset_dir: data\n", "f").dataset_name[0].is_path);
}

TEST_CASE("keys choose the hub, or that nothing is downloaded", "[recipe]") {
  CHECK(with("").hub == Hub::automatic);
  CHECK(with("hub: modelscope\n").hub == Hub::modelscope);
  CHECK_FALSE(with("").offline);
  CHECK(with("local_files_only: true\n").offline);
}

TEST_CASE("keys in grouping sections count as top-level keys", "[recipe]") {
  const auto config =
      with("model_init_kwargs: {torch_dtype: bfloat16}\npeft_config: {r: 4, alpha: 8}\n");
  CHECK(config.dtype == Dtype::bf16);
  CHECK(config.lora_r == 4);
  CHECK(config.lora_alpha == 8);
  CHECK(with("model_init_kwargs:\ntraining_args: {}\n").notes.empty());
  CHECK(mistake("peft_config:\n  rnk: 4\n") == "f:4: unknown key rnk");
}

TEST_CASE("evaluation requires data, and the best model requires evaluation", "[recipe]") {
  CHECK_THAT(mistake("eval_strategy: steps\n"), Contains("requires evaluation data"));
  CHECK(with("val_set_size: 100\neval_steps: 50\n").eval_strategy == When::steps);
  CHECK_THAT(mistake("load_best_model_at_end: true\n"), Contains("requires eval_strategy"));
  CHECK_THAT(mistake("val_set_size: 9\neval_strategy: epoch\nload_best_model_at_end: true\n"),
             Contains("requires equal save_strategy and eval_strategy"));
  CHECK_THAT(
      mistake("val_set_size: 9\neval_steps: 30\nsave_steps: 100\nload_best_model_at_end: true\n"),
      Contains("must be a multiple of eval_steps 30"));
  CHECK_THAT(mistake("early_stopping_patience: 3\n"), Contains("requires eval_strategy"));
  CHECK(with("val_set_size: 9\nevals_per_epoch: 2\nnum_epochs: 5\n").eval_steps == .1);
  CHECK_THAT(mistake("eval_steps: 2.5\n"), Contains("need a whole number of steps"));
}

TEST_CASE("contradictory keys are refused", "[recipe]") {
  CHECK_THAT(mistake("gradient_aggregation: median\nzero_stage: 2\n"),
             Contains("requires zero_stage 0 or 1, not 2"));
  CHECK_THAT(mistake("batch_sharding: weighted\n"), Contains("requires gpu_weights"));
  CHECK_THAT(mistake("gpu_weights: [1, 2]\n"), Contains("requires batch_sharding: weighted"));
  CHECK_THAT(mistake("full_determinism: true\nbatch_sharding: adaptive\n"),
             Contains("batch_sharding: adaptive distributes work by measured times"));
  CHECK(with("full_determinism: true\nbatch_sharding: uniform\n").full_determinism);
  CHECK(with("gemm_choice: timed\n").gemm_choice == GemmSelection::timed);
  CHECK_THAT(mistake("gemm_choice: fast\n"), Contains("need one of heuristic, timed"));
  CHECK_THAT(mistake("gemm_choice: timed\ntask: grpo\n"),
             Contains("the micro-batches of GRPO have ever new sizes"));
  CHECK_THAT(mistake("model_size: tiny\n"), Contains("contradicts model_name_or_path"));
  CHECK_THAT(mistake("packing: true\ngroup_by_length: true\n"), Contains("contradicts packing"));
  CHECK_THAT(mistake("lora_target_modules: [q_proj, lm_head]\n"), Contains("lora_modules_to_save"));
}

TEST_CASE("a model from scratch without a tokenizer gets one from its data", "[recipe]") {
  const std::string lines = "dataset_name: d.jsonl\nmodel_size: tiny\n";
  const auto config = parse_recipe(lines, "f");
  CHECK(config.tokenizer_kind == "bpe");
  CHECK(config.vocab_size == 8192);
  CHECK(parse_recipe(lines + "tokenizer_kind: characters\nvocab_size: 5\n", "f").vocab_size == 5);
  CHECK_THROWS_WITH(parse_recipe(lines + "vocab_size: 258\n", "f"),
                    "f:3: vocab_size: need at least 259 with tokenizer_kind: bpe");
  CHECK_THROWS_WITH(parse_recipe(lines + "tokenizer_kind: characters\nvocab_size: 4\n", "f"),
                    "f:4: vocab_size: need at least 5 with tokenizer_kind: characters");
  CHECK_THROWS_WITH(parse_recipe(lines + "tokenizer_kind: words\n", "f"),
                    Contains("need one of bpe, characters, not words"));
  CHECK_THROWS_WITH(parse_recipe(lines + "tokenizer_path: t\nvocab_size: 512\n", "f"),
                    Contains("vocab_size: requires model_size without tokenizer_path"));
  CHECK_THROWS_WITH(parse_recipe(lines + "reward_funcs: [format]\n", "f"),
                    Contains("model_size: requires tokenizer_path"));
}

TEST_CASE("a model from scratch has a size of its family", "[recipe]") {
  const std::string lines = "dataset_name: d.jsonl\ntokenizer_path: t\n";
  const auto config = parse_recipe(lines + "model_size: 0.6b\nmodel_family: qwen3\n", "f");
  CHECK(config.model_size == "0.6B");
  CHECK(config.model_family == mgpu::model::Family::qwen3);
  CHECK(parse_recipe(lines + "model_size: tiny\n", "f").model_family == mgpu::model::Family::qwen2);
  CHECK_THROWS_WITH(parse_recipe(lines + "model_size: 8B\n", "f"),
                    "f:3: model_size: must be tiny, small, medium or large, not '8B', which is a "
                    "size of model_family: qwen3");
  CHECK_THAT(mistake("model_family: qwen3\n"),
             Contains("model_family: requires model_size: a checkpoint has its own family"));
  CHECK_THROWS_WITH(parse_recipe(lines + "model_size: tiny\nmodel_family: gpt2\n", "f"),
                    Contains("need one of llama, mistral, qwen2, qwen3, not gpt2"));
}

TEST_CASE("an error names a missing model or dataset", "[recipe]") {
  try {
    parse_recipe("seed: 1\n", "f");
    FAIL("accepted");
  } catch (const RecipeError& e) {
    REQUIRE(e.lines().size() == 2);
    CHECK_THAT(e.lines()[0], Contains("model_name_or_path is missing"));
    CHECK_THAT(e.lines()[1], Contains("dataset_name is missing"));
  }
  CHECK_THROWS_WITH(parse_recipe("", "f"), "f:1: the file is empty");
  CHECK_THROWS_WITH(parse_recipe("- a\n", "f"),
                    Contains("a recipe consists of \"key: value\" lines"));
}

TEST_CASE("every accepted key is read", "[recipe][table]") {
  for (const auto& key : config_keys()) {
    for (const char* value : {"1", "true", "x", "[x]", "{x: 1}"}) {
      CAPTURE(key.name, value);
      CHECK_NOTHROW([&] {
        try {
          parse_recipe(fmt::format("{}: {}\n", key.name, value), "f");
        } catch (const RecipeError&) {
        }
      }());
    }
  }
}

TEST_CASE("every key has a help text", "[table]") {
  for (const auto& key : config_keys()) {
    CAPTURE(key.name);
    CHECK(find_key(key.name) == &key);
    for (const auto& alias : key.aliases) CHECK(find_key(alias) == &key);
    if (!key.sets.empty()) CHECK(find_key(key.sets));
    CHECK((key.use == KeyUse::used ? key.help : key.instead) != "");
  }
}

TEST_CASE("steps to trace are numbers and ranges", "[resolve]") {
  struct Case {
    const char* line;
    std::vector<std::int64_t> expected;
  };
  const auto [line, expected] = GENERATE(values<Case>({
      {"trace_steps: 7\n", {7}},
      {"trace_steps: [10, 11]\n", {10, 11}},
      {"trace_steps: 10-12\n", {10, 11, 12}},
      {"trace_steps: \"10-12\"\n", {10, 11, 12}},
      {"trace_steps: [11-12, 3, 12]\n", {3, 11, 12}},
      {"trace_steps: 1-100\nmax_steps: 100\n", with("trace_steps: 1-100\n").trace_steps},
  }));
  CAPTURE(line);
  CHECK(with(line).trace_steps == expected);
}

TEST_CASE("steps that cannot be traced are errors", "[resolve]") {
  const std::string need =
      "f:3: trace_steps: need steps counted from 1, as numbers and ranges such as [5, 10-12], not ";
  CHECK(mistake("trace_steps: 0\n") == need + "0");
  CHECK(mistake("trace_steps: -3\n") == need + "-3");
  CHECK(mistake("trace_steps: 1.5\n") == need + "1.5");
  CHECK(mistake("trace_steps: 12-10\n") == need + "12-10");
  CHECK(mistake("trace_steps: []\n") == need + "a list");
  CHECK(mistake("trace_steps: [1, last]\n") == need + "a list");
  CHECK(mistake("trace_steps: 1-101\n") == "f:3: trace_steps: need at most 100 steps");
  CHECK(mistake("trace_steps: [1-60, 61-120]\n") == "f:3: trace_steps: need at most 100 steps");
  CHECK(mistake("trace_steps: 1-9000000000000000000\n") ==
        "f:3: trace_steps: need at most 100 steps");
  CHECK(mistake("trace_steps: [2, 11]\nmax_steps: 10\n") ==
        "f:3: trace_steps: step 11 is out of range: max_steps is 10");
  CHECK(noted(with("trace_dir: t\n"), "trace_dir: has no effect without trace_steps"));
}
