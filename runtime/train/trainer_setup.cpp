// The part of setup() after the files are open: ranks, weights, the plan of steps.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/min.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <stdexcept>

#include "runtime/config/keys/optimizer_names.hpp"
#include "runtime/config/planning/planner.hpp"
#include "runtime/data/repeated_examples.hpp"
#include "runtime/model/model_shape.hpp"
#include "runtime/train/device.hpp"
#include "runtime/train/failure_report.hpp"
#include "runtime/train/row_sources.hpp"
#include "runtime/train/trainer.hpp"
#include "runtime/train/weights_io.hpp"

namespace mgpu::train {

std::size_t Trainer::prefetched_steps(const TrainConfig& config) {
  return static_cast<std::size_t>(std::max(1, config.dataloader_num_workers)) *
         static_cast<std::size_t>(config.dataloader_prefetch_factor);
}

Trainer::Trainer(TrainConfig config, rendezvous::Contract contract)
    : Session(std::move(config), std::move(contract)) {}

Trainer::~Trainer() = default;

void Trainer::setup() {
  check_ranks(config_, contract_.world_size);
  begin_start();
  open_files();
  if (stream_) stream_->clear_folder();
  join(task_fingerprint());
  plan_step_batch();
  plan_memory();
  build();
  adopt_micro_batch();
  plan_steps();
  load_or_resume();
  // From here on a stop signal saves a checkpoint, which needs all ranks: wait until all are ready.
  comm_->barrier(takes_a_place() ? "barrier after replacing a rank" : "barrier before training");
  announce_readiness();
}

void Trainer::plan_step_batch() {
  batch_ = plan_batch(config_, comm_->world());
  global_batch_ = batch_.global();
}

// After memory ran out, build() has chosen smaller micro-batches for the same step.
void Trainer::adopt_micro_batch() {
  if (config_.per_device_train_batch_size == batch_.per_device) return;
  batch_.per_device = config_.per_device_train_batch_size;
  const auto at_once = batch_.per_device * batch_.ranks;
  batch_.accumulation = (global_batch_ + at_once - 1) / at_once;
}

// The plan of memory is for the longest row that there is; with packing, bins are full.
void Trainer::plan_memory() {
  refuses_too_large_ = true;
  if (stream_) return;
  const auto lengths = train_data_->dataset.lengths();
  if (config_.packing || lengths.empty()) return;
  planned_length_ =
      std::min<std::int64_t>(config_.max_length, *std::max_element(lengths.begin(), lengths.end()));
}

// Those that equal an earlier row, if the recipe requests so.
std::vector<std::uint32_t> Trainer::rows_to_leave_out(const data::Dataset& dataset,
                                                      const char* use) {
  if (!config_.dataset_exact_deduplication) return {};
  auto repeated = data::repeated_examples(dataset);
  notes_.push_back(fmt::format(
      "dataset_exact_deduplication: {} of {} {} rows equal an earlier one and are left out",
      repeated.size(), dataset.size(), use));
  return repeated;
}

data::ScheduleOptions Trainer::schedule_options() const {
  data::ScheduleOptions options;
  options.seed = config_.data_seed.value_or(config_.seed);
  options.global_batch = global_batch_;
  options.shuffle = config_.shuffle_dataset;
  options.packing = config_.packing;
  options.pack_in_order = config_.packing_strategy == "sequential";
  options.capacity = static_cast<std::uint32_t>(config_.max_length);
  options.group_by_length = config_.group_by_length;
  return options;
}

void Trainer::plan_steps() {
  if (eval_data_) {
    eval_dataset_ = &eval_data_->dataset;
    const auto repeated = rows_to_leave_out(*eval_dataset_, "evaluation");
    eval_items_ = data::singles(data::split(eval_dataset_->ranges(), 0, 0, repeated).all());
  }
  if (!stream_) {
    const auto& dataset = train_data_->dataset;
    const auto options = schedule_options();
    const auto left_out = rows_to_leave_out(dataset, "training");
    auto split = data::split(dataset.ranges(), config_.val_set_size, options.seed, left_out);
    if (!eval_data_ && !split.validation.empty()) {
      eval_dataset_ = &dataset;
      eval_items_ = data::singles(split.validation);
    }
    data::interleave(split.train, mixed_datasets(config_.dataset_name), mixture_of(config_));
    plan_.emplace(dataset.lengths(), std::move(split.train), options);
  }
  total_steps_ =
      config_.max_steps > 0 ? config_.max_steps : plan_->total_steps(config_.num_train_epochs);
  rates_.emplace(config_.lr_scheduler_type, config_.learning_rate, config_.warmup_steps,
                 total_steps_, config_.lr_scheduler_kwargs);
  pacer_ = std::make_unique<Pacer>(config_.batch_sharding, config_.gpu_weights, comm_->world(),
                                   prefetched_steps(config_));
}

Fingerprint Trainer::task_fingerprint() const {
  std::vector<std::string> digests;
  if (stream_)
    digests = stream_->digests();
  else
    for (const auto& report : train_data_->reports) digests.push_back(report.digest);
  return {
      {"dataset_name", dataset_digest(config_.dataset_name, digests)},
      {"tokenizer", encoder_digest_},
      {"streaming", stream_ ? fmt::format("windows of {} rows", stream_->window_rows()) : "no"}};
}

void Trainer::load_or_resume() {
  const auto task = task_fingerprint();
  if (takes_a_place()) {
    begin_as_replacement(global_batch_, task);
    take_place();
    start_loader();
    begin_report("");
    reporter_->note(fmt::format("this process took the place of rank {} after step {}",
                                contract_.rank, progress_.step));
    report_what_the_lost_rank_did_not();
    return;
  }
  const auto checkpoint = begin(global_batch_, task);
  load(checkpoint, [&] {
    start_times_->measure("first batch", [&] { start_loader(); });
    if (next_ && !next_->micro_batches.empty())
      start_times_->measure("rehearsal", [&] { learner_->rehearse(next_->micro_batches.front()); });
  });
  begin_report(checkpoint);
  for (const auto& line : data_lines()) reporter_->note(line);
  for (const auto& note : notes_) reporter_->note(note);
  reporter_->note(batch_sentence(batch_, config_.packing));
}

}  // namespace mgpu::train
