#include "runtime/train/session.hpp"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/min.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <thread>
#include <utility>

#include "runtime/checkpoint/file.hpp"
#include "runtime/config/grpo_values.hpp"
#include "runtime/config/optimizer_choice.hpp"
#include "runtime/config/planning/planner.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/kernels/cublas_lt.hpp"
#include "runtime/optim/adamw.hpp"
#include "runtime/train/adapter_start.hpp"
#include "runtime/train/device.hpp"
#include "runtime/train/packed_weights.hpp"
#include "runtime/train/rank_device.hpp"
#include "runtime/train/start_anew.hpp"
#include "runtime/train/weights_io.hpp"

namespace mgpu::train {
namespace {

namespace fs = std::filesystem;

// How long a rank whose collective has failed waits for the news that the lost peer is replaced.
// The launcher learns of the loss when the kernel has freed the memory of that process.
constexpr auto kNewsOfReplacement = std::chrono::seconds(10);

// Not a key: results are the same, and the default becomes the faster one once it is measured.
constexpr const char* kUpdateOrder = "MGPU_UPDATES";

parallel::ShardOptions shard_options(const TrainConfig& config, at::Device device) {
  parallel::ShardOptions options;
  options.zero_stage = config.zero_stage;
  options.device = device;
  options.dtype = compute_dtype(config.dtype, device);
  options.grad_dtype = config.grad_dtype == "bf16" ? at::kBFloat16 : at::kFloat;
  if (options.dtype == at::kHalf && options.grad_dtype == at::kBFloat16)
    throw std::runtime_error("grad_dtype: must be fp32 beside fp16; remove it");
  options.bucket_elements = config.reduce_bucket_size;
  options.overlap = config.overlap_comm;
  if (const char* order = std::getenv(kUpdateOrder))
    options.updates = parallel::update_order(order);
  if (config.gradient_aggregation == Aggregation::median) {
    if (config.zero_stage > 1) {
      throw std::runtime_error("gradient_aggregation: median needs zero_stage 0 or 1");
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

// What each layer's forward saves for its backward.
std::vector<model::SavedActivations> saved_activations_for(Recompute recompute,
                                                           std::int64_t layers) {
  const auto all = [&](model::SavedActivations keep) {
    return std::vector<model::SavedActivations>(static_cast<std::size_t>(layers), keep);
  };
  switch (recompute) {
    case Recompute::full:
      return all(model::SavedActivations::input);
    case Recompute::offload:
      return all(model::SavedActivations::on_host);
    case Recompute::no:
    case Recompute::automatic:
      break;
  }
  return {};
}

// Converts `every` to steps: a value below 1 is a share of all steps.
std::int64_t every_steps(double every, std::int64_t total) {
  if (every <= 0) return 0;
  if (every < 1) return static_cast<std::int64_t>(std::ceil(every * static_cast<double>(total)));
  return static_cast<std::int64_t>(every);
}

// States of a run in training_status.json.
constexpr const char* kRunning = "running";

const char* state_of(EndReason reason) {
  switch (reason) {
    case EndReason::complete:
      return "complete";
    case EndReason::stopped:
      return "stopped";
    case EndReason::early:
      return "early";
  }
  return "";
}

}  // namespace

Session::Session(TrainConfig config, rendezvous::Contract contract)
    : config_(std::move(config)), contract_(std::move(contract)), step_reports_(contract_) {}

Session::~Session() = default;

void Session::open_model() {
  checkpoint::make_writable_folder(config_.output_dir);
  if (!config_.trace_steps.empty()) {
    if (config_.trace_dir.empty())
      config_.trace_dir = (fs::path(config_.output_dir) / "traces").string();
    checkpoint::make_writable_folder(config_.trace_dir);
  }
  source_.emplace(start_times_->measure("model files", [&] { return train::open_model(config_); }));
  notes_.insert(notes_.end(), source_->notes.begin(), source_->notes.end());
  check_vocabulary(*source_);
  if (source_->config.nf4) decide_four_bit();
  if (!config_.adapter_path.empty()) {
    adapter_ = open_adapter(config_.adapter_path);
    for (auto& note : adopt_adapter_settings(*adapter_, source_->config, config_))
      notes_.push_back(std::move(note));
  }
  if (config_.use_peft && source_->config.vocab_size > source_->vocab_on_disk)
    save_new_token_rows();
  if (config_.use_peft && config_.save_final_model && !source_->is_in(config_.output_dir) &&
      fs::exists(fs::path(config_.output_dir) / "config.json"))
    notes_.push_back(fmt::format("{} contains a whole model; this run's adapter will replace it",
                                 config_.output_dir));
}

// The base model's files have no rows for new tokens, so an adapter saved without these rows would
// be unusable.
void Session::save_new_token_rows() {
  auto& saved = config_.lora_modules_to_save;
  std::vector<std::string> needed{"embed_tokens"};
  if (!source_->config.tied) needed.push_back("lm_head");
  for (const auto& name : needed) {
    if (std::find(saved.begin(), saved.end(), name) != saved.end()) continue;
    saved.push_back(name);
    notes_.push_back(
        fmt::format("new_tokens requires {} to be trained and saved with the adapter: added it to "
                    "lora_modules_to_save",
                    name));
  }
}

// A model with 4-bit weights stays in 4 bits if only adapters are trained. Full fine-tuning
// dequantizes it.
void Session::decide_four_bit() {
  if (config_.use_peft && config_.pissa)
    throw_recipe_error("init_lora_weights: pissa changes the base weights, and those of " +
                       source_->folder + " are in 4 bits");
  if (config_.load_in_8bit)
    throw_recipe_error("load_in_8bit: " + source_->folder +
                       " has 4-bit weights already; remove load_in_8bit");
  if (config_.use_peft && !config_.load_in_4bit) {
    config_.load_in_4bit = true;
    notes_.push_back(source_->folder +
                     " has 4-bit weights, which stay in 4 bits (load_in_4bit: true)");
  } else if (!config_.use_peft) {
    notes_.push_back(source_->folder +
                     " has 4-bit weights, which are converted to 16 bits or more to be trained");
  }
}

void Session::begin_start() {
  prepare_libraries(config_);
  request_ = join_request(config_, contract_, device_index_);
  if (contract_.replacement && contract_.world_size > 1) {
    peers_ = std::make_shared<PeerReplacement>(contract_, [this] { rejoinable_->interrupt(); });
    request_->options.peer_replaced = [peers = peers_] {
      return peers->requested(kNewsOfReplacement);
    };
  }
  if (contract_.rank == 0 && !takes_a_place())
    search_.emplace([times = start_times_, output_dir = config_.output_dir,
                     wanted = config_.resume_from_checkpoint] {
      return times->measure("checksums", [&] { return search_checkpoint(output_dir, wanted); });
    });
  // Only a job that has trained before finds its data prepared: a communicator should not stay idle
  // for the hours that tokenizing may take.
  const bool connects =
      contract_.restart_count > 0 ||
      (config_.resume_from_checkpoint != "no" && checkpoint::has_checkpoint(config_.output_dir));
  joining_.emplace([times = start_times_, connects, request = *request_] {
    times->measure("device", [&] { open_device(request); });
    if (!connects || !can_connect_in_background(request)) return std::unique_ptr<comm::Comm>();
    return times->measure("communicator", [&] { return connect(request); });
  });
}

void Session::join() {
  comm_ = joining_->take();
  request_->device_index = device_index_;
  device_ = open_device(*request_);  // in this thread too
  if (!comm_) comm_ = start_times_->measure("communicator", [&] { return connect(*request_); });
  rejoinable_ = dynamic_cast<comm::RejoinableComm*>(comm_.get());
}

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
  if (config_.gradient_checkpointing == Recompute::automatic) {
    config_.gradient_checkpointing =
        request.gpu_bytes > 0 ? choose_recompute(request) : Recompute::no;
  }
  request.config.gradient_checkpointing = config_.gradient_checkpointing;
  use_oom_remedies(request);
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

void Session::choose_algorithms(const StepOutcome& outcome) {
  if (!gemms_ || !outcome.new_products) return;
  const StepReports::Phase phase(step_reports_, "algorithms");
  if (const auto note = gemms_->choose(outcome.step); !note.empty()) reporter_->note(note);
}

void Session::build() {
  decide_memory_options();
  LearnerOptions options;
  options.shards = shard_options(config_, device_);
  options.model.device = device_;
  options.model.dtype = options.shards.dtype;
  options.model.fp32_logits = GrpoValues(config_).flag("cast_lm_head_to_fp32");
  options.model.saved_activations =
      saved_activations_for(config_.gradient_checkpointing, source_->config.layers);
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

void Session::resume(const std::string& checkpoint, std::int64_t global_batch,
                     const Fingerprint& fingerprint) {
  progress_ = saver_->read_progress(checkpoint);
  if (progress_.global_batch != global_batch) {
    throw std::runtime_error(
        fmt::format("{} was saved with {} sequences per step, but this run uses {}; set "
                    "global_batch_size: {} "
                    "to resume, or resume_from_checkpoint: no to start over",
                    checkpoint, progress_.global_batch, global_batch, progress_.global_batch));
  }
  for (auto& note :
       check_same_run(checkpoint, progress_.fingerprint, fingerprint, config_.resume_with_changes))
    notes_.push_back(std::move(note));
  progress_.fingerprint = fingerprint;
  if (progress_.loss_scale) learner_->restore_loss_scale(*progress_.loss_scale);
  last_saved_ = progress_.step;
  last_checkpoint_ = checkpoint;
  if (progress_.best_step) {
    const auto best =
        fs::path(config_.output_dir) / fmt::format("checkpoint-{}", *progress_.best_step);
    if (fs::exists(best)) best_checkpoint_ = best.string();
  }
}

void Session::check_trace_steps() const {
  if (config_.trace_steps.empty() || config_.trace_steps.back() <= total_steps_) return;
  throw_recipe_error(fmt::format("trace_steps: step {} is out of range: this run has {} steps",
                                 config_.trace_steps.back(), total_steps_));
}

Fingerprint Session::fingerprint_with(const Fingerprint& task) const {
  auto fingerprint = settings_fingerprint(config_);
  for (const auto& [key, value] : task) fingerprint[key] = value;
  fingerprint["total_steps"] = std::to_string(total_steps_);
  return fingerprint;
}

// The trained weights and the progress come from the other ranks, so there is no checkpoint to find
// and, without adapters, no weights to read.
void Session::begin_as_replacement(std::int64_t global_batch, const Fingerprint& task) {
  auto& shards = learner_->shards();
  if (config_.use_peft && source_->weights) {
    load_weights(shards, *source_->weights, source_->config, source_->vocab_on_disk);
  } else if (config_.use_peft) {
    draw_weights(shards, source_->config.initializer_range, config_.seed);
  }
  learner_->create_optimizer();
  progress_.global_batch = global_batch;
  progress_.fingerprint = fingerprint_with(task);
}

std::string Session::begin(std::int64_t global_batch, const Fingerprint& task) {
  check_trace_steps();
  auto fingerprint = fingerprint_with(task);
  const auto checkpoint = start_times_->measure("checkpoint", [&] {
    return saver_->share(search_ ? search_->take() : checkpoint::FoundCheckpoint());
  });
  if (!checkpoint.empty()) {
    resume(checkpoint, global_batch, fingerprint);
  } else {
    if (config_.overwrite_output_dir && contract_.rank == 0) delete_earlier_run(config_, contract_);
    progress_.global_batch = global_batch;
    progress_.data_seed = config_.data_seed.value_or(config_.seed);
    progress_.fingerprint = std::move(fingerprint);
  }
  if (gemms_) begin_gemms(checkpoint);
  return checkpoint;
}

void Session::begin_gemms(const std::string& checkpoint) {
  std::optional<GemmTable> saved;
  if (!progress_.gemms.is_null())
    saved = gemm_table_in(progress_.gemms, checkpoint + "/trainer_state.json: gemm_choices");
  if (auto note = gemms_->begin(checkpoint, saved); !note.empty())
    notes_.push_back(std::move(note));
}

void Session::load_base_model() {
  auto& shards = learner_->shards();
  start_times_->measure("weights", [&] {
    if (source_->weights) {
      load_weights(shards, *source_->weights, source_->config, source_->vocab_on_disk);
    } else {
      draw_weights(shards, source_->config.initializer_range, config_.seed);
    }
    draw_adapters(shards, config_.seed);
    if (adapter_) load_adapter(shards, *adapter_, source_->config);
  });
  if (!begins_together()) create_first_optimizer();
}

bool Session::begins_together() const {
  return config_.use_peft && !adapter_ && (config_.pissa || config_.use_dora);
}

void Session::begin_together() {
  auto& shards = learner_->shards();
  if (config_.pissa)
    saver_->set_appended(begin_with_pissa(shards, *source_, config_, *comm_));
  else
    set_magnitudes(shards, source_->config, lora_scale(config_));
  create_first_optimizer();
}

void Session::create_first_optimizer() {
  start_times_->measure("optimizer", [&] {
    learner_->create_optimizer();
    if (adapter_) load_master_weights(learner_->optimizer(), *adapter_, source_->config);
  });
}

void Session::load_checkpoint(const std::string& checkpoint) {
  start_times_->measure("weights", [&] { saver_->load_model(checkpoint); });
  start_times_->measure("optimizer", [&] { saver_->load_state(checkpoint, progress_); });
}

void Session::load(const std::string& checkpoint, const std::function<void()>& meanwhile) {
  const auto load_all = [&] {
    if (checkpoint.empty())
      load_base_model();
    else
      load_checkpoint(checkpoint);
  };
  load_beside(load_all, meanwhile);
  // Not in load_all, which a rank without enough memory repeats alone.
  if (checkpoint.empty() && begins_together()) begin_together();
}

void Session::load_beside(const std::function<void()>& load_all,
                          const std::function<void()>& meanwhile) {
  if (!device_.is_cuda() || !meanwhile) {  // on a CPU both would compete for the same cores
    load_all();
    if (meanwhile) meanwhile();
    return;
  }
  std::exception_ptr failure;
  bool too_little_memory = false;
  {
    const std::jthread loading([&] {
      try {
        take_device(device_.index(), true);
        load_all();
      } catch (const std::exception& e) {
        too_little_memory = is_out_of_memory(e);
        failure = std::current_exception();
      }
    });
    meanwhile();
  }
  if (too_little_memory) {  // beside what `meanwhile` used for a moment
    failure = nullptr;
    release_unused_memory(device_);
    load_all();
  }
  if (failure) std::rethrow_exception(failure);
}

// Steps before the one that the run resumes at are not trained again.
void Session::begin_trace() {
  auto steps = config_.trace_steps;
  std::erase_if(steps, [&](std::int64_t step) { return step <= progress_.step; });
  if (steps.size() < config_.trace_steps.size())
    reporter_->note(fmt::format(
        "trace_steps: {} of {} steps are before step {}, where this run "
        "resumes, and are not recorded",
        config_.trace_steps.size() - steps.size(), config_.trace_steps.size(), progress_.step + 1));
  if (steps.empty()) return;
  trace_ = std::make_unique<StepTrace>(
      std::move(steps), config_.trace_dir, contract_.rank, contract_.world_size, device_,
      [reporter = reporter_.get()](const std::string& line) { reporter->note(line); });
}

void Session::step_begins() {
  report_save(false);
  if (!std::exchange(first_step_began_, true)) start_times_->begin_first_step();
  if (trace_) trace_->step_begins(progress_.step + 1);
  if (gemms_ && gemms_->choices() != nullptr) gemms_->choices()->begin_step(progress_.step);
}

void Session::step_ends() {
  if (start_times_->first_step_is_running()) {
    wait_for(device_);
    reporter_->start(progress_.step, start_times_->end_first_step());
  }
  step_reports_.report(progress_.step, learner_->waited_seconds());
  if (trace_) trace_->step_ends(progress_.step);
}

void Session::begin_report(const std::string& checkpoint) {
  Reporter::Facts facts;
  facts.rank = contract_.rank;
  facts.world = contract_.world_size;
  facts.device = device_;
  facts.device_name = device_name(device_);
  facts.first_step = progress_.step;
  facts.planned_bytes = planned_bytes_;
  facts.rank_gpus = rank_gpus_;
  facts.other_devices = other_devices_;
  if (!checkpoint.empty()) facts.log_history = progress_.log_history.dump();
  reporter_ = std::make_unique<Reporter>(config_, facts);
  places_ = gather_places(*comm_, device_);
  for (const auto& line : start_lines(places_, comm_->backend())) reporter_->note(line);
  if (!checkpoint.empty()) {
    reporter_->note(
        fmt::format("resuming from {} at step {} of {}", checkpoint, progress_.step, total_steps_));
  }
  begin_trace();
  write_status(kRunning);
}

TrainingStats Session::training_stats() const {
  return {.rank = contract_.rank,
          .world_size = contract_.world_size,
          .is_distributed = contract_.world_size > 1,
          .step = progress_.step,
          .total_steps = total_steps_,
          .epoch = progress_.epoch};
}

void Session::write_status(const char* state) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  reporter_->status(status_text(training_stats(), state, std::chrono::duration<double>(now).count(),
                                contract_.run_id, contract_.restart_count, comm_->backend(),
                                places_));
}

void Session::report_interval(const Interval& interval) {
  reporter_->interval(interval);
  write_status(kRunning);
}

void Session::report_end(const Interval& whole_run) {
  reporter_->summary(whole_run);
  write_status(state_of(end_reason_));
}

bool Session::log_due() const {
  if (config_.logging_first_step && progress_.step == 1) return true;
  const auto every = every_steps(config_.logging_steps, total_steps_);
  return every > 0 && progress_.step % every == 0;
}

bool Session::due(double every, When strategy, bool epoch_ends) const {
  if (strategy == When::epoch) return epoch_ends;
  if (strategy != When::steps) return false;
  const auto steps = every_steps(every > 0 ? every : config_.logging_steps, total_steps_);
  return steps > 0 && progress_.step % steps == 0;
}

bool Session::report_overflow(std::int64_t step, const StepOutcome& outcome) {
  if (!outcome.loss_scale) return false;
  if (gives_up(*outcome.loss_scale, config_.on_non_finite == NonFinite::stop))
    throw std::runtime_error(overflow_error(step, *outcome.loss_scale));
  reporter_->note(overflow_note(step, *outcome.loss_scale));
  return true;
}

}  // namespace mgpu::train
