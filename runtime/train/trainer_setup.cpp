// What happens before the first step, after the files: ranks, weights, the plan.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/min.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "runtime/config/optimizer_names.hpp"
#include "runtime/config/planner.hpp"
#include "runtime/model/model_shape.hpp"
#include "runtime/train/device.hpp"
#include "runtime/train/four_bit.hpp"
#include "runtime/train/last_words.hpp"
#include "runtime/train/trainer.hpp"
#include "runtime/train/weights_io.hpp"

namespace mgpu::train {
namespace {

namespace fs = std::filesystem;

comm::Backend backend_of(const std::string& name) {
  if (name == "nccl") return comm::Backend::nccl;
  if (name == "gloo") return comm::Backend::gloo;
  return comm::Backend::automatic;
}

[[noreturn]] void die(const std::string& text) {
  leave_last_words(text);
  _Exit(1);
}

parallel::ShardOptions shard_options(const TrainConfig& config, at::Device device) {
  parallel::ShardOptions options;
  options.zero_stage = config.zero_stage;
  options.device = device;
  options.dtype = compute_dtype(config.dtype, device);
  options.grad_dtype = config.grad_dtype == "bf16" ? at::kBFloat16 : at::kFloat;
  options.bucket_elements = config.reduce_bucket_size;
  options.overlap = config.overlap_comm;
  if (config.gradient_aggregation == Aggregation::median) {
    if (config.zero_stage > 1) {
      throw std::runtime_error("gradient_aggregation: median needs zero_stage 0 or 1");
    }
    options.reduce = parallel::Reduce::median;
  }
  return options;
}

optim::Moments moments_of(const TrainConfig& config) {
  if (config.optim == "adamw_8bit") return optim::Moments::eight_bit;
  return config.optim_dtype == "bf16" ? optim::Moments::bf16 : optim::Moments::fp32;
}

// What is kept of a layer's forward.
std::vector<model::Keep> keep_policy(Recompute recompute, std::int64_t layers) {
  const auto all = [&](model::Keep keep) {
    return std::vector<model::Keep>(static_cast<std::size_t>(layers), keep);
  };
  switch (recompute) {
    case Recompute::full:
      return all(model::Keep::input);
    case Recompute::offload:
      return all(model::Keep::on_host);
    case Recompute::no:
    case Recompute::automatic:
      break;
  }
  return {};
}

}  // namespace

Trainer::Trainer(TrainConfig config, rendezvous::Contract contract)
    : config_(std::move(config)), contract_(std::move(contract)) {}

Trainer::~Trainer() = default;

void Trainer::setup() {
  check_ranks(config_, contract_.world_size);
  open_files();
  join();
  build();
  plan_steps();
  resume();
  start_loader();
  // From here on ranks save when they are told to end: all of them must be there for it.
  comm_->barrier("the beginning of training");
}

void Trainer::join() {
  const int gpus = visible_gpus();
  comm::CommOptions options;
  options.backend = comm::choose(backend_of(config_.backend), contract_, gpus);
  options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(config_.ddp_timeout * 1e3));
  options.fatal = die;
  const bool gpu = options.backend == comm::Backend::nccl;
  device_ = take_device(contract_.local_rank, gpu);
  comm_ = comm::join(contract_, options);
  at::globalContext().setAllowTF32CuBLAS(false);
  if (config_.full_determinism) at::globalContext().setDeterministicAlgorithms(true, false);
}

// What is left to us: how much is spread and what is recomputed. All ranks decide alike, by the
// smallest of their GPUs.
void Trainer::settle_memory() {
  PlanRequest request{source_->config, config_, comm_->world(), 0};
  if (device_.is_cuda()) {
    const auto own =
        at::full({1}, device_memory(device_).total, at::TensorOptions(device_).dtype(at::kLong));
    const auto all = at::empty({comm_->world()}, own.options());
    comm_->all_gather(all, own, "the sizes of the GPUs").wait();
    request.gpu_bytes = all.min().item<std::int64_t>();
  }
  config_.zero_stage = request.config.zero_stage = choose_zero_stage(request);
  if (config_.gradient_checkpointing == Recompute::automatic) {
    config_.gradient_checkpointing =
        request.gpu_bytes > 0 ? choose_recompute(request) : Recompute::no;
  }
  if (request.gpu_bytes > 0)
    planned_bytes_ = estimate_memory(source_->config, config_, comm_->world()).allocated();
  if (config_.consistency_check_steps > 0 && (comm_->world() == 1 || config_.zero_stage == 3)) {
    notes_.push_back(
        "consistency_check_steps: every weight is on one rank only; there is nothing "
        "to compare");
    config_.consistency_check_steps = 0;
  }
}

// After ranks ran out of memory: the same step in more, smaller pieces, with the same result.
void Trainer::settle_batch() {
  batch_ = plan_batch(config_, comm_->world());
  global_batch_ = batch_.global();
  for (int i = 0; i < contract_.oom_count && batch_.per_device > 1; ++i) {
    batch_.per_device = (batch_.per_device + 1) / 2;
    const auto at_once = batch_.per_device * batch_.ranks;
    batch_.accumulation = (global_batch_ + at_once - 1) / at_once;
  }
  config_.per_device_train_batch_size = batch_.per_device;
}

void Trainer::build() {
  settle_batch();
  settle_memory();
  LearnerOptions options;
  options.shards = shard_options(config_, device_);
  options.model.device = device_;
  options.model.dtype = options.shards.dtype;
  options.model.keep = keep_policy(config_.gradient_checkpointing, source_->config.layers);
  options.model.adapter_scale = config_.use_peft ? lora_scale(config_) : 1;
  options.model.adapter_dropout = config_.use_peft ? config_.lora_dropout : 0;
  options.optimizer = {config_.adam_beta1, config_.adam_beta2, config_.adam_epsilon,
                       config_.weight_decay, moments_of(config_)};
  options.weigh_by_labels = config_.gradient_aggregation == Aggregation::weighted;
  options.sum_over_ranks = config_.gradient_aggregation == Aggregation::sum;
  options.max_grad_norm = config_.max_grad_norm;
  options.seed = config_.seed;
  options.times_device = config_.batch_sharding == Sharding::adaptive;
  learner_ = std::make_unique<Learner>(
      source_->config,
      model::lay_out(source_->config, lora_shape(config_), four_bit_of(config_, *source_)), options,
      *comm_);
  saver_ = std::make_unique<Saver>(config_, *source_, *learner_);
}

void Trainer::plan_steps() {
  const auto data_seed = config_.data_seed.value_or(config_.seed);
  const auto& dataset = train_data_->dataset;
  auto split = data::split(dataset.ranges(), config_.val_set_size, data_seed);
  if (eval_data_) {
    evaluated_ = &eval_data_->dataset;
    std::vector<std::uint32_t> all(evaluated_->size());
    std::iota(all.begin(), all.end(), 0U);
    eval_items_ = data::singles(all);
  } else if (!split.validation.empty()) {
    evaluated_ = &dataset;
    eval_items_ = data::singles(split.validation);
  }
  data::ScheduleOptions options;
  options.seed = data_seed;
  options.global_batch = global_batch_;
  options.shuffle = config_.shuffle_dataset;
  options.packing = config_.packing;
  options.capacity = static_cast<std::uint32_t>(config_.max_length);
  options.group_by_length = config_.group_by_length;
  plan_.emplace(dataset.lengths(), std::move(split.train), options);
  total_steps_ =
      config_.max_steps > 0 ? config_.max_steps : plan_->total_steps(config_.num_train_epochs);
  rates_.emplace(config_.lr_scheduler_type, config_.learning_rate, config_.warmup_steps,
                 total_steps_, config_.lr_scheduler_kwargs);
  pacer_ = std::make_unique<Pacer>(config_.batch_sharding, config_.gpu_weights, comm_->world(), 2);
}

void Trainer::resume() {
  const auto checkpoint = saver_->find();
  if (!checkpoint.empty()) {
    progress_ = saver_->load(checkpoint);
    if (progress_.global_batch != global_batch_) {
      throw std::runtime_error(fmt::format(
          "{} was made with {} sequences a step, this run has {}: set global_batch_size: {}, or "
          "resume_from_checkpoint: no to begin anew",
          checkpoint, progress_.global_batch, global_batch_, progress_.global_batch));
    }
    last_saved_ = progress_.step;
    last_checkpoint_ = checkpoint;
    if (progress_.best_step) {
      const auto best =
          fs::path(config_.output_dir) / fmt::format("checkpoint-{}", *progress_.best_step);
      if (fs::exists(best)) best_checkpoint_ = best.string();
    }
  } else {
    auto& shards = learner_->shards();
    if (source_->weights) {
      load_weights(shards, *source_->weights, source_->config, source_->vocab_on_disk);
    } else {
      draw_weights(shards, source_->config.initializer_range, config_.seed);
    }
    draw_adapters(shards, config_.seed);
    if (adapter_) load_adapter(shards, *adapter_, source_->config);
    learner_->begin();
    progress_.global_batch = global_batch_;
    progress_.data_seed = config_.data_seed.value_or(config_.seed);
  }
  Reporter::Facts facts;
  facts.rank = contract_.rank;
  facts.world = contract_.world_size;
  facts.device = device_;
  facts.device_name = device_name(device_);
  facts.first_step = progress_.step;
  facts.planned_bytes = planned_bytes_;
  if (!checkpoint.empty()) facts.log_history = progress_.log_history.dump();
  facts.flops_per_token =
      (config_.use_peft ? 4.0 : 6.0) * static_cast<double>(model::parameter_count(source_->config));
  reporter_ = std::make_unique<Reporter>(config_, facts);
  if (!checkpoint.empty()) {
    reporter_->note(
        fmt::format("going on from {} at step {} of {}", checkpoint, progress_.step, total_steps_));
  }
  for (const auto& line : data_lines()) reporter_->note(line);
  for (const auto& note : notes_) reporter_->note(note);
  reporter_->note(batch_sentence(batch_, config_.packing));
}

}  // namespace mgpu::train
