// The part of Session that chooses the memory options and creates the learner.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/min.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "rendezvous/base/input_error.hpp"
#include "runtime/config/grpo_values.hpp"
#include "runtime/config/optimizer_choice.hpp"
#include "runtime/config/planning/memory_model.hpp"
#include "runtime/config/planning/planner.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/kernels/cublas_lt.hpp"
#include "runtime/optim/adamw.hpp"
#include "runtime/train/device.hpp"
#include "runtime/train/fp8_support.hpp"
#include "runtime/train/host_tensor.hpp"
#include "runtime/train/packed_weights.hpp"
#include "runtime/train/session.hpp"

namespace mgpu::train {
namespace {

parallel::ShardOptions shard_options(const TrainConfig& config, at::Device device) {
  parallel::ShardOptions options;
  options.zero_stage = config.zero_stage;
  options.device = device;
  options.dtype = compute_dtype(config.dtype, device);
  options.grad_dtype = config.grad_dtype == "bf16" ? at::kBFloat16 : at::kFloat;
  if (options.dtype == at::kHalf && options.grad_dtype == at::kBFloat16)
    throw rendezvous::InputError("grad_dtype: must be fp32 beside fp16; remove it");
  options.bucket_elements = config.reduce_bucket_size;
  options.overlap = config.overlap_comm;
  if (config.offload_embedding.value_or(false))
    options.host_memory = [pinned = device.is_cuda()](std::int64_t elements, at::ScalarType type) {
      return host_tensor(elements, type, pinned);
    };
  if (config.gradient_aggregation == Aggregation::median) {
    if (config.zero_stage > 1) {
      throw rendezvous::InputError("gradient_aggregation: median needs zero_stage 0 or 1");
    }
    options.reduce = parallel::Reduce::median;
  }
  return options;
}

// Loss scaling is for fp16 only: what bf16 and fp32 round to 0 is too small to matter.
std::optional<LossScaleRule> loss_scale_rule(const TrainConfig& config, at::ScalarType dtype) {
  if (dtype != at::kHalf) return {};
  return LossScaleRule{
      .dynamic = config.loss_scale == 0,
      .initial = config.loss_scale > 0 ? config.loss_scale : std::exp2(config.initial_scale_power),
      .window = config.loss_scale_window,
      .hysteresis = config.loss_scale_hysteresis,
      .restores_each_step = config.consecutive_hysteresis,
      .least = config.min_loss_scale};
}

optim::MakeOptimizer optimizer_of(const TrainConfig& config) {
  return optim::make_adamw({config.adam_beta1, config.adam_beta2, config.adam_epsilon,
                            config.weight_decay, moments_of(config)});
}

// What each layer's forward saves for its backward. The last layers are those that keep everything:
// backward frees them before the first ones are computed again.
std::vector<model::SavedActivations> saved_activations_for(const TrainConfig& config,
                                                           std::int64_t layers) {
  const auto keep = config.gradient_checkpointing == Recompute::offload
                        ? model::SavedActivations::on_host
                        : model::SavedActivations::input;
  return {static_cast<std::size_t>(recomputed_layers_of(config, layers)), keep};
}

}  // namespace

// Chooses how much ZeRO shards and what is recomputed, where the recipe says `auto`. All ranks make
// the same choice because all use the size of the smallest GPU.
void Session::decide_memory_options() {
  PlanRequest request{.model = source_->config,
                      .config = config_,
                      .ranks = comm_->world(),
                      .wants_copies = peers_ && config_.task == Task::sft};
  if (planned_length_ > 0) request.config.max_length = planned_length_;
  if (device_.is_cuda()) {
    const auto own =
        at::full({1}, device_memory(device_).total, at::TensorOptions(device_).dtype(at::kLong));
    const auto all = at::empty({comm_->world()}, own.options());
    comm_->all_gather(all, own, "all-gather of GPU memory sizes").wait();
    gpu_bytes_ = all.min().item<std::int64_t>();
    request.gpu_bytes = std::max<std::int64_t>(1, gpu_bytes_ - reserved_bytes_);
  }
  config_.zero_stage = request.config.zero_stage = choose_zero_stage(request);
  const auto recomputed = choose_recompute(request);
  const bool chosen = config_.gradient_checkpointing != recomputed.way ||
                      config_.recomputed_layers != recomputed.layers;
  if (chosen && recomputed.way != Recompute::no)
    notes_.push_back(fmt::format("chosen for {:.1f} GiB of GPU memory: gradient_checkpointing: {}",
                                 gib(request.gpu_bytes), recompute_text(recomputed)));
  config_ = with_recomputation(std::move(config_), recomputed);
  request.config = with_recomputation(std::move(request.config), recomputed);
  const bool asked = config_.offload_embedding.has_value();
  const bool ran_out = contract_.oom_count > 0 && config_.oom == OutOfMemory::shrink;
  config_.offload_embedding = choose_offload_embedding(request, ran_out);
  // Where the recipe's other settings exclude it, the proposals are free to change those.
  if (can_offload_embedding(request.model, request.config))
    request.config.offload_embedding = config_.offload_embedding;
  if (!asked && *config_.offload_embedding)
    notes_.push_back(fmt::format("chosen for {:.1f} GiB of GPU memory: offload_embedding: true",
                                 gib(request.gpu_bytes)));
  use_oom_remedies(request);
  memory_plan_ = request;
  if (request.gpu_bytes > 0)
    planned_bytes_ = estimate_memory(request.model, request.config, request.ranks).allocated();
  if (const auto lack = refuses_too_large_ ? memory_error(request) : std::nullopt)
    throw RecipeError({*lack});
  if (config_.consistency_check_steps > 0 && (comm_->world() == 1 || config_.zero_stage == 3)) {
    notes_.push_back(
        "consistency_check_steps is ignored: every weight is on one rank only, so there is nothing "
        "to compare");
    config_.consistency_check_steps = 0;
  }
}

ops::GemmChoices* Session::open_gemms() {
  if (config_.gemm_choice != GemmSelection::timed) return nullptr;
  gemms_ = std::make_unique<JobGemms>(device_.is_cuda() ? ops::open_cublas_lt(device_) : nullptr,
                                      *comm_, device_, config_.output_dir);
  return gemms_->choices();
}

void Session::build() {
  decide_memory_options();
  if (auto note = fp8_note(config_, source_->config, device_)) notes_.push_back(std::move(*note));
  LearnerOptions options;
  options.shards = shard_options(config_, device_);
  options.model.device = device_;
  options.model.dtype = options.shards.dtype;
  options.model.fp32_logits = GrpoValues(config_).flag("cast_lm_head_to_fp32");
  options.model.head_rows = config_.head_rows;
  options.model.saved_activations = saved_activations_for(config_, source_->config.layers);
  options.model.adapter_scale = config_.use_peft ? lora_scale(config_) : 1;
  options.model.adapter_dropout = config_.use_peft ? config_.lora_dropout : 0;
  options.model.embedding_noise = config_.neftune_noise_alpha;
  options.confirms_sums = rejoinable_ != nullptr && device_.is_cuda();
  options.optimizer = optimizer_of(config_);
  options.weigh_by_target_tokens = config_.gradient_aggregation == Aggregation::weighted;
  options.sum_over_ranks = config_.gradient_aggregation == Aggregation::sum;
  options.max_grad_norm = config_.max_grad_norm;
  options.loss_scale = loss_scale_rule(config_, options.shards.dtype);
  options.seed = config_.seed;
  options.gemms = open_gemms();
  options.pin_memory = config_.dataloader_pin_memory;
  options.survives_out_of_memory = config_.oom == OutOfMemory::shrink;
  options.pieces = static_cast<std::size_t>(oom_.pieces);
  options.times_device = config_.batch_sharding == Sharding::adaptive;
  learner_ = start_times_->measure("memory", [&] {
    return std::make_unique<Learner>(
        source_->config,
        model::lay_out(source_->config, lora_shape(config_, source_->config),
                       packing_of(config_, *source_)),
        options, *comm_);
  });
  flops_ = model::training_flops(source_->config, learner_->shards().layout());
  saver_ = std::make_unique<Saver>(config_, contract_, *source_, *learner_);
  learner_->set_before_update([saver = saver_.get()] { saver->hold_updates(); });
}

}  // namespace mgpu::train
