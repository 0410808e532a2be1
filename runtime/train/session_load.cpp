// The part of Session that loads the weights and the optimizer's state, of a model or a checkpoint.
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "runtime/train/adapter_start.hpp"
#include "runtime/train/device.hpp"
#include "runtime/train/rank_device.hpp"
#include "runtime/train/session.hpp"
#include "runtime/train/start_anew.hpp"
#include "runtime/train/verified_checkpoint.hpp"
#include "runtime/train/weights_io.hpp"

namespace mgpu::train {

namespace fs = std::filesystem;

Fingerprint Session::fingerprint_with(const Fingerprint& task) const {
  auto fingerprint = settings_fingerprint(config_);
  for (const auto& [key, value] : task) fingerprint[key] = value;
  fingerprint["total_steps"] = std::to_string(total_steps_);
  fingerprint["model_name_or_path"] = model_digest_;
  return fingerprint;
}

// A first attempt is started by somebody who can choose another batch. A later one may have fewer
// ranks than its job began with, and the next one may have them again.
void Session::refuse_batch(const std::string& checkpoint, std::int64_t global_batch) const {
  const auto saved = progress_.global_batch;
  const auto at_once = config_.per_device_train_batch_size * contract_.world_size;
  std::string advice = fmt::format("global_batch_size: {}", saved);
  if (config_.gradient_accumulation_given && saved % at_once == 0)
    advice = fmt::format("gradient_accumulation_steps: {}", saved / at_once);
  else if (config_.gradient_accumulation_given)
    advice += " without gradient_accumulation_steps";
  const auto text = fmt::format(
      "{} was saved with {} {} per step, but this run uses {}; set {} to resume, or "
      "resume_from_checkpoint: no to start over",
      checkpoint, saved, config_.task == Task::grpo ? "completions" : "sequences", global_batch,
      advice);
  if (contract_.restart_count == 0) throw_recipe_error(text);
  throw std::runtime_error(text);
}

void Session::resume(const std::string& checkpoint, std::int64_t global_batch,
                     const Fingerprint& fingerprint) {
  progress_ = saver_->read_progress(checkpoint);
  if (progress_.global_batch != global_batch) refuse_batch(checkpoint, global_batch);
  for (auto& note :
       check_same_run(checkpoint, progress_.fingerprint, fingerprint, config_.resume_with_changes))
    notes_.push_back(std::move(note));
  progress_.fingerprint = fingerprint;
  if (progress_.loss_scale) learner_->restore_loss_scale(*progress_.loss_scale);
  last_saved_ = progress_.step;
  last_checkpoint_ = checkpoint;
  if (progress_.best_step && config_.load_best_model_at_end) find_best_model(*progress_.best_step);
}

// The best model so far is in a checkpoint of this run, or beside the one that it resumes from.
void Session::find_best_model(std::int64_t step) {
  fs::path resumed(last_checkpoint_);
  if (!resumed.has_filename()) resumed = resumed.parent_path();  // a name that ends with a slash
  const auto name = fmt::format("checkpoint-{}", step);
  for (const auto& folder : {fs::path(config_.output_dir), resumed.parent_path()}) {
    if (!fs::exists(folder / name)) continue;
    best_checkpoint_ = (folder / name).string();
    return;
  }
  notes_.push_back(
      fmt::format("the best model so far, {}, is neither in {} nor beside {}; unless a better one "
                  "follows, load_best_model_at_end takes the last model",
                  name, config_.output_dir, last_checkpoint_));
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
  read_verified([&] {
    start_times_->measure("weights", [&] { saver_->load_model(checkpoint); });
    start_times_->measure("optimizer", [&] { saver_->load_state(checkpoint, progress_); });
  });
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

}  // namespace mgpu::train
