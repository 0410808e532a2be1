// The keys of the optimizer, precision, memory and parallelism.

#include <cmath>
#include <map>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>

#include "rendezvous/base/spelling.hpp"
#include "runtime/config/keys/key_table.hpp"
#include "runtime/config/keys/optimizer_names.hpp"
#include "runtime/config/reading/yaml_values.hpp"

namespace mgpu::train {
namespace {

using C = TrainConfig;

// PyTorch counts a bucket in MiB of gradients, this program in elements, which are fp32.
void set_bucket_megabytes(C& c, const YamlNode& value) {
  const double megabytes = to_number(value);
  Range{.least = 0, .most = 1e6, .above = true}.check(megabytes);
  c.reduce_bucket_size = static_cast<std::int64_t>(std::ceil(megabytes * (1 << 20) / 4));
  c.notes.push_back(fmt::format("means reduce_bucket_size: {} (elements)", c.reduce_bucket_size));
}

void set_timeout_minutes(C& c, const YamlNode& value) {
  const double minutes = to_number(value);
  above(0).check(minutes);
  c.ddp_timeout = minutes * 60;
}

const Choices<Dtype> kDtypes{{"auto", Dtype::automatic},
                             {"bf16", Dtype::bf16},
                             {"fp16", Dtype::fp16},
                             {"fp32", Dtype::fp32}};
const Choices<Recompute> kRecomputes{{"auto", Recompute::automatic},
                                     {"false", Recompute::no},
                                     {"true", Recompute::full},
                                     {"offload", Recompute::offload}};

const Choices<std::optional<bool>> kOffloads{
    {"auto", std::nullopt}, {"true", true}, {"false", false}, {"yes", true},
    {"no", false},          {"on", true},   {"off", false}};

// All layers, as few as memory needs, or a number of them.
void set_recomputed_layers(C& c, const YamlNode& value) {
  if (value.text == "all") {
    c.recomputed_layers = kAllLayers;
  } else if (value.text == "auto") {
    c.recomputed_layers = kFewestLayers;
  } else {
    try {
      c.recomputed_layers = to_whole(value);
      at_least(1).check(static_cast<double>(c.recomputed_layers));
    } catch (const std::runtime_error&) {
      throw std::runtime_error(fmt::format(
          "need all, auto or a number of layers of at least 1, not {}; gradient_checkpointing: "
          "false recomputes none",
          rendezvous::shown(value.text, 32)));
    }
  }
}

std::string recomputed_layers_word(const C& c) {
  if (c.recomputed_layers == kAllLayers) return "all";
  return c.recomputed_layers == kFewestLayers ? "auto" : std::to_string(c.recomputed_layers);
}

std::string shown_map(const std::map<std::string, double>& numbers) {
  std::vector<std::string> words;
  for (const auto& [name, number] : numbers) words.push_back(name + ": " + shown_number(number));
  return shown_words(words);
}

void set_allgather_elements(C& c, const YamlNode& value) {
  c.allgather_bucket_size = to_whole(value);
  at_least(0).check(static_cast<double>(c.allgather_bucket_size));
  if (c.allgather_bucket_size > 0)
    c.notes.push_back("has no effect: updated weights are gathered in place, not in buckets");
}

// 2 to this power and its inverse are normal numbers in fp32.
constexpr double kLargestScalePower = 126;

void set_loss_scale(C& c, const YamlNode& value) {
  c.loss_scale = 0;
  if (value.text == "dynamic") return;
  c.loss_scale = to_number(value);
  between(0, std::exp2(kLargestScalePower)).check(c.loss_scale);
}

const Choices<Fp8> kFp8s{{"none", Fp8::none},      {"base", Fp8::base},     {"mlp", Fp8::mlp},
                         {"true", Fp8::automatic}, {"yes", Fp8::automatic}, {"on", Fp8::automatic},
                         {"false", Fp8::none},     {"no", Fp8::none},       {"off", Fp8::none}};

Field write_only(std::string value, void (*set)(C&, const YamlNode&)) {
  return {.value = std::move(value), .set = set};
}

// Also accepts the enumerators of unsloth-multigpu, such as AggregationMethod.MEAN.
Field aggregation_choice() {
  auto field = choice(&C::gradient_aggregation, {{"weighted", Aggregation::weighted},
                                                 {"weighted_mean", Aggregation::weighted},
                                                 {"mean", Aggregation::mean},
                                                 {"median", Aggregation::median},
                                                 {"sum", Aggregation::sum}});
  field.set = [set = field.set](C& c, const YamlNode& value) {
    constexpr std::string_view kEnum = "AggregationMethod.";
    auto word = value;
    if (word.text.starts_with(kEnum)) word.text.erase(0, kEnum.size());
    set(c, word);
  };
  return field;
}

Field dtype_choice(std::string C::* member) {
  return choice(member,
                {{"fp32", "fp32"}, {"float32", "fp32"}, {"bf16", "bf16"}, {"bfloat16", "bf16"}});
}

}  // namespace

// clang-format off: one paragraph per key is easier to read than one line per field.
std::vector<KeySpec> optimizer_keys() {
  return {
      {.name = "learning_rate",
       .aliases = {"lr"},
       .field = number(&C::learning_rate, at_least(0)),
       .help = "peak learning rate of the schedule",
       .initial = "2e-05; 1e-06 for grpo"},
      {.name = "lr_scheduler_type",
       .aliases = {"lr_scheduler", "scheduler", "lr_schedule"},
       .field = {.value = "NAME",
                 .set = set_scheduler,
                 .show = [](const C& c) { return c.lr_scheduler_type; }},
       .help = "learning rate schedule: linear, constant, constant_with_warmup, cosine, "
               "cosine_with_restarts, cosine_with_min_lr, cosine_warmup_with_min_lr, polynomial, "
               "inverse_sqrt or warmup_stable_decay",
       .initial = "linear"},
      {.name = "lr_scheduler_kwargs",
       .field = shown_as([](const TrainConfig& c) { return shown_map(c.lr_scheduler_kwargs); }),
       .help = "parameters of the schedule, such as {min_lr_rate: 0.1}",
       .value = "MAP"},
      {.name = "cosine_min_lr_ratio",
       .aliases = {"final_lr_fraction"},
       .help = "final learning rate as a fraction of learning_rate; selects cosine_with_min_lr",
       .value = "NUMBER"},
      {.name = "warmup_steps",
       .aliases = {"num_warmup_steps", "lr_warmup_steps"},
       .field = shown_as([](const TrainConfig& c) { return shown_number(c.warmup_steps); }),
       .help = "steps until the peak learning rate; below 1: a fraction of all steps",
       .initial = "0",
       .value = "NUMBER"},
      {.name = "warmup_ratio",
       .aliases = {"lr_warmup_ratio"},
       .help = "older name: a fraction of all steps",
       .value = "NUMBER",
       .sets = "warmup_steps"},
      {.name = "optim",
       .aliases = {"optimizer", "optimizer_type"},
       .field = {.value = "NAME", .set = set_optimizer, .show = [](const C& c) { return c.optim; }},
       .help = "AdamW; adamw_8bit keeps its moments in 8 bits",
       .initial = "adamw_torch_fused"},
      {.name = "adam_beta1",
       .aliases = {"beta1", "adamw_beta1"},
       .field = number(&C::adam_beta1, {.least = 0, .most = 1, .below = true}),
       .help = "decay rate of the first moment (mean of the gradients)"},
      {.name = "adam_beta2",
       .aliases = {"beta2", "adamw_beta2"},
       .field = number(&C::adam_beta2, {.least = 0, .most = 1, .below = true}),
       .help = "decay rate of the second moment (mean of their squares)"},
      {.name = "betas",
       .aliases = {"adam_betas"},
       .field = write_only("[B1, B2]", set_betas),
       .help = "adam_beta1 and adam_beta2 in one key"},
      {.name = "adam_epsilon",
       .aliases = {"adamw_epsilon", "eps", "adam_eps"},
       .field = number(&C::adam_epsilon, above(0)),
       .help = "term that keeps AdamW's division finite"},
      {.name = "weight_decay",
       .aliases = {"wd"},
       .field = number(&C::weight_decay, at_least(0)),
       .help = "weight decay; not applied to norms and biases"},
      {.name = "max_grad_norm",
       .aliases = {"clip_grad", "grad_clip", "gradient_clip", "gradient_clipping", "clip_grad_norm",
                   "gradient_clip_val"},
       .field = number(&C::max_grad_norm, at_least(0)),
       .help = "gradients are clipped to this norm; 0: no clipping"},
      {.name = "neftune_noise_alpha",
       .aliases = {"neftune_alpha"},
       .field = number(&C::neftune_noise_alpha, at_least(0)),
       .help = "NEFTune: adds uniform noise of at most this / sqrt(tokens x width) to the embeddings "
               "of each sequence in training; 0: none"},
      {.name = "optim_dtype",
       .field = dtype_choice(&C::optim_dtype),
       .help = "dtype of AdamW's moments; in bf16 they are rounded at random"},
      {.name = "grad_dtype",
       .field = dtype_choice(&C::grad_dtype),
       .help = "dtype in which gradients are accumulated and reduced"},
      {.name = "on_non_finite",
       .field = choice(&C::on_non_finite, {{"skip", NonFinite::skip}, {"stop", NonFinite::stop}}),
       .help = "what to do with a step whose gradients are infinite or NaN: skip it (ten in a row end the run), or stop the "
               "run"},
  };
}

std::vector<KeySpec> memory_keys() {
  return {
      {.name = "dtype",
       .aliases = {"torch_dtype", "infer_dtype", "precision"},
       .field = shown_as([](const TrainConfig& c) { return choice_name(c.dtype, kDtypes); }),
       .help = "dtype of the computation; the optimizer's master weights are always fp32",
       .initial = "auto: bf16 on GPUs, fp16 on those without bf16, fp32 on CPUs",
       .value = "auto|bf16|fp16|fp32"},
      {.name = "bf16",
       .aliases = {"pure_bf16", "bfloat16"},
       .help = "true means dtype: bf16, false means dtype: fp32",
       .value = "true|false|auto",
       .sets = "dtype"},
      {.name = "fp16",
       .aliases = {"float16"},
       .help = "true means dtype: fp16",
       .value = "true|false|auto",
       .sets = "dtype"},
      {.name = "loss_scale",
       .field = {.value = "NUMBER|dynamic",
                 .set = set_loss_scale,
                 .show = [](const C& c) {
                   return c.loss_scale == 0 ? "dynamic" : shown_number(c.loss_scale);
                 }},
       .help = "fp16: factor of the loss in the backward pass; dynamic (or 0) adapts it to the "
               "overflows"},
      {.name = "initial_scale_power",
       .field = number(&C::initial_scale_power, between(0, kLargestScalePower)),
       .help = "a dynamic loss scale starts as 2 to this power"},
      {.name = "loss_scale_window",
       .field = whole(&C::loss_scale_window, between(1, 1e9)),
       .help = "steps without overflow after which a dynamic loss scale is doubled"},
      {.name = "loss_scale_hysteresis",
       .aliases = {"hysteresis"},
       .field = whole(&C::loss_scale_hysteresis, between(1, 1e6)),
       .help = "number of overflows until one halves a dynamic loss scale"},
      {.name = "consecutive_hysteresis",
       .field = flag(&C::consecutive_hysteresis),
       .help = "only overflows in a row count towards loss_scale_hysteresis"},
      {.name = "min_loss_scale",
       .field = number(&C::min_loss_scale, above(0)),
       .help = "a dynamic loss scale does not become smaller"},
      {.name = "mixed_precision",
       .aliases = {"enable_mixed_precision"},
       .help = "bf16, fp16 or no; true means dtype: auto, false means dtype: fp32",
       .value = "WORD",
       .sets = "dtype"},
      {.name = "fp8",
       .field = choice(&C::fp8, kFp8s),
       .help = "8-bit floating point; base: the frozen weights, and the products with them; mlp: "
               "in full training, the products of the MLP except the gradients of its weights; "
               "true: base with LoRA, else mlp. See [fp8](training.md#fp8)"},
      {.name = "gradient_checkpointing",
       .aliases = {"enable_gradient_checkpointing", "use_gradient_checkpointing", "recompute",
                   "activation_checkpointing"},
       .field = shown_as([](const TrainConfig& c) {
         return choice_name(c.gradient_checkpointing, kRecomputes);
       }),
       .help = "recomputes layers in the backward pass; offload (or unsloth) also moves their "
               "inputs to host memory; auto decides by the memory of the GPU",
       .initial = "auto",
       .value = "true|false|auto|offload"},
      {.name = "recomputed_layers",
       .aliases = {"recompute_num_layers"},
       .field = {.value = "all|auto|N",
                 .set = set_recomputed_layers,
                 .show = recomputed_layers_word},
       .help = "how many layers are recomputed, from the first one on; auto: as few as the memory "
               "of the GPU requires. A number or all implies gradient_checkpointing: true",
       .initial = "auto; all with gradient_checkpointing: true or offload"},
      {.name = "recompute_granularity",
       .help = "full means gradient_checkpointing: true; selective has no effect, because "
               "attention never keeps its scores",
       .value = "full|selective",
       .sets = "gradient_checkpointing"},
      {.name = "recompute_method",
       .help = "block: the first recomputed_layers are recomputed; uniform: all are",
       .value = "block|uniform",
       .sets = "recomputed_layers"},
      {.name = "disable_gradient_checkpointing",
       .help = "the opposite",
       .value = "true|false",
       .sets = "gradient_checkpointing"},
      {.name = "activation_offloading",
       .help = "true means gradient_checkpointing: offload",
       .value = "true|false",
       .sets = "gradient_checkpointing"},
      {.name = "offload_embedding",
       .aliases = {"offload_embeddings"},
       .field = choice(&C::offload_embedding, kOffloads),
       .help = "keeps the frozen input embedding of LoRA in host memory, where the GPU looks its "
               "rows up; auto: only if training would not fit into the memory of the GPU otherwise. "
               "See [Memory and ZeRO](training.md#memory-and-zero)"},
      {.name = "head_rows",
       .field = whole(&C::head_rows, between(1, 1 << 20)),
       .help = "target tokens whose logits are computed at a time in the loss; fewer need less "
               "memory, and many small products take longer"},
      {.name = "zero_stage",
       .aliases = {"zero_level", "zero"},
       .field = shown_as([](const TrainConfig& c) {
         return c.zero_stage == kAutomaticStage ? std::string("auto")
                                                : std::to_string(c.zero_stage);
       }),
       .help = "what is sharded over the ranks: 1 optimizer state, 2 also gradients, 3 also "
               "weights; auto: 0 on one rank, else 1 or the first higher stage that fits",
       .initial = "auto",
       .value = "auto|0|1|2|3"},
      {.name = "oom",
       .aliases = {"on_out_of_memory"},
       .field = choice(&C::oom,
                       {{"shrink", OutOfMemory::shrink},
                                  {"restart", OutOfMemory::restart},
                                  {"fail", OutOfMemory::fail}}),
       .help = "what to do when memory runs out; shrink: compute the same steps in smaller "
               "micro-batches, and restart with settings that need less memory; restart: restart "
               "with the same settings; fail: do not restart. See [Out of memory](training.md#out-of-memory)"},
      {.name = "deepspeed",
       .aliases = {"deepspeed_config", "accelerate_config", "zero_optimization"},
       .help = "DeepSpeed JSON or accelerate YAML file, or its keys inline; see [DeepSpeed and "
               "accelerate files](training.md#deepspeed-and-accelerate-files)",
       .value = "PATH|MAP"},
      {.name = "fsdp",
       .help = "full_shard means zero_stage: 3, shard_grad_op 2 and no_shard 0",
       .value = "LIST",
       .sets = "zero_stage"},
      {.name = "fsdp_config",
       .help = "keys of FSDP, or a JSON file with them; see [FSDP](training.md#fsdp)",
       .value = "PATH|MAP",
       .sets = "zero_stage"},
      {.name = "reduce_bucket_size",
       .field = whole(&C::reduce_bucket_size, at_least(0)),
       .help = "gradient elements per reduction; 0: chosen automatically"},
      {.name = "ddp_bucket_cap_mb",
       .aliases = {"bucket_cap_mb"},
       .field = write_only("NUMBER", set_bucket_megabytes),
       .help = "the same in MiB of fp32 gradients",
       .sets = "reduce_bucket_size"},
      {.name = "allgather_bucket_size",
       .field = {.value = "N",
                 .set = set_allgather_elements,
                 .show = [](const C& c) { return std::to_string(c.allgather_bucket_size); }},
       .help = "weight elements per all-gather; has no effect: updated weights are gathered in "
               "place, not in buckets"},
      {.name = "overlap_comm",
       .field = flag(&C::overlap_comm),
       .help = "overlaps communication with the backward pass"},
      {.name = "gemm_choice",
       .field = choice(&C::gemm_choice, {{"heuristic", GemmSelection::heuristic},
                                         {"timed", GemmSelection::timed}}),
       .help = "who chooses the algorithm of a large matrix product on a GPU: cuBLAS by its "
               "heuristic, or a measurement after the first steps, which later attempts reuse "
               "(no gain on an H200); not with GRPO"},
      {.name = "gradient_aggregation",
       .aliases = {"aggregation_method", "aggregation"},
       .field = aggregation_choice(),
       .help = "how the gradients of the ranks are combined; weighted: by their numbers of target "
               "tokens"},
      {.name = "batch_sharding",
       .aliases = {"batch_sharding_strategy"},
       .field = choice(&C::batch_sharding, {{"uniform", Sharding::uniform},
                                            {"weighted", Sharding::weighted},
                                            {"adaptive", Sharding::adaptive}}),
       .help = "how work is divided among the ranks: equally, by gpu_weights or by measured speed"},
      {.name = "gpu_weights",
       .field = numbers(&C::gpu_weights, at_least(0)),
       .help = "share of the work of each rank, for batch_sharding: weighted"},
      {.name = "consistency_check_steps",
       .aliases = {"gradient_consistency_check_steps"},
       .field = whole(&C::consistency_check_steps, at_least(0)),
       .help = "compares tensors that several ranks hold, bit for bit, every so many steps; 0: "
               "never"},
      {.name = "backend",
       .aliases = {"ddp_backend", "dist_backend", "distributed_backend"},
       .field = choice(&C::backend, {{"auto", "auto"}, {"nccl", "nccl"}, {"gloo", "gloo"}}),
       .help = "communication backend; auto: NCCL on GPUs, Gloo on CPUs"},
      {.name = "ddp_timeout",
       .field = number(&C::ddp_timeout, above(0)),
       .help = "seconds that ranks wait for each other"},
      {.name = "ddp_timeout_minutes",
       .field = write_only("NUMBER", set_timeout_minutes),
       .help = "the same in minutes",
       .sets = "ddp_timeout"},
  };
}

}  // namespace mgpu::train
