// What happens before the first step: files, data, ranks, weights, the plan.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/min.h>
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "rendezvous/store/client.hpp"
#include "runtime/checkpoint/file.hpp"
#include "runtime/config/optimizer_names.hpp"
#include "runtime/config/planner.hpp"
#include "runtime/data/text_encoder.hpp"
#include "runtime/model/model_shape.hpp"
#include "runtime/train/device.hpp"
#include "runtime/train/four_bit.hpp"
#include "runtime/train/last_words.hpp"
#include "runtime/train/trainer.hpp"
#include "runtime/train/weights_io.hpp"

namespace mgpu::train {
namespace {

namespace fs = std::filesystem;

// How long a rank waits for others that tokenise.
constexpr auto kPrepareTimeout = std::chrono::hours(24);

std::string cache_folder(const TrainConfig& config) {
  if (!config.dataset_prepared_path.empty()) return config.dataset_prepared_path;
  if (const char* home = getenv("XDG_CACHE_HOME")) return std::string(home) + "/mgpu-train";
  if (const char* home = getenv("HOME")) return std::string(home) + "/.cache/mgpu-train";
  return (fs::path(config.output_dir) / ".tokens").string();
}

data::RowOptions row_options(const TrainConfig& config, std::int64_t vocabulary) {
  data::RowOptions rows;
  rows.format = config.dataset_format;
  rows.text_field = config.dataset_text_field;
  rows.prompt_template = config.prompt_template;
  rows.completion_only_loss = config.completion_only_loss;
  rows.assistant_only_loss = config.assistant_only_loss;
  rows.vocabulary = vocabulary;
  return rows;
}

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

void Trainer::open_files() {
  checkpoint::make_writable_folder(config_.output_dir);
  source_.emplace(open_model(config_));
  check_vocabulary(*source_);
  if (source_->config.nf4) settle_four_bit();
  if (!config_.adapter_path.empty()) {
    adapter_ = open_adapter(config_.adapter_path);
    for (auto& note : adopt(*adapter_, source_->config, config_)) notes_.push_back(std::move(note));
  }
  open_data();
}

// A checkpoint in 4 bits stays so under adapters, and becomes numbers where all is trained.
void Trainer::settle_four_bit() {
  if (config_.use_peft && !config_.load_in_4bit) {
    config_.load_in_4bit = true;
    notes_.push_back(source_->folder + " is in 4 bits and stays so (load_in_4bit: true)");
  } else if (!config_.use_peft) {
    notes_.push_back(source_->folder + " is in 4 bits; all of it is trained, in 16 bits or more");
  }
}

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

// Ranks wait for each other through the launcher's store: tokenising may take hours, and no
// communicator should stand idle so long.
data::Prepared Trainer::prepare(const std::vector<DataSource>& sources) {
  data::PrepareOptions options;
  options.cache = cache_folder(config_);
  options.rows = row_options(config_, source_->config.vocab_size);
  options.max_length = config_.max_length;
  options.skip_bad_rows = config_.on_bad_row == BadRow::skip;
  options.threads = config_.dataset_num_proc;
  options.part = contract_.rank;
  options.parts = contract_.world_size;
  std::optional<rendezvous::store::StoreClient> store;
  int round = 0;
  if (contract_.world_size > 1) {
    store.emplace(contract_.master_addr, contract_.master_port, kPrepareTimeout);
    options.barrier = [&] {
      store->barrier(fmt::format("mgpu-train/{}/{}/prepared-{}-{}", contract_.run_id,
                                 contract_.restart_count, sources.front().path, round++),
                     contract_.world_size);
    };
  }
  std::vector<data::Source> files;
  for (const auto& source : sources) files.push_back({source.path, source.weight});
  const data::TextEncoder encoder(source_->tokenizer, source_->chat_template);
  return data::prepare(files, options, encoder);
}

void Trainer::open_data() {
  train_data_ = prepare(config_.dataset_name);
  if (!config_.eval_dataset.empty()) eval_data_ = prepare(config_.eval_dataset);
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

void Trainer::build() {
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
  batch_ = plan_batch(config_, comm_->world());
  const auto global = batch_.global();
  for (int i = 0; i < contract_.oom_count && batch_.per_device > 1; ++i) {
    // The same step in more, smaller pieces: the result stays what it would have been.
    batch_.per_device = (batch_.per_device + 1) / 2;
    batch_.accumulation =
        (global + batch_.per_device * batch_.ranks - 1) / (batch_.per_device * batch_.ranks);
  }
  global_batch_ = global;
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
