#include "runtime/train/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "runtime/checkpoint/file.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/train/device.hpp"
#include "runtime/train/rank_device.hpp"
#include "runtime/train/same_inputs.hpp"

namespace mgpu::train {
namespace {

namespace fs = std::filesystem;

// How long a rank whose collective has failed waits for the news that the lost peer is replaced.
// The launcher learns of the loss when the kernel has freed the memory of that process.
constexpr auto kNewsOfReplacement = std::chrono::seconds(10);

// Converts `every` to steps: a value below 1 is a share of all steps.
std::int64_t every_steps(double every, std::int64_t total) {
  if (every <= 0) return 0;
  if (every < 1) return static_cast<std::int64_t>(std::ceil(every * static_cast<double>(total)));
  return static_cast<std::int64_t>(every);
}

constexpr int kMostNotFinite = 10;  // steps in a row

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
    : config_(std::move(config)),
      contract_(std::move(contract)),
      own_store_(serve_missing_store(contract_)),
      step_reports_(contract_) {}

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
  if (config_.use_peft && source_->has_new_tokens()) save_new_token_rows();
  if (config_.use_peft && config_.save_final_model && !source_->is_in(config_.output_dir) &&
      fs::exists(fs::path(config_.output_dir) / "config.json"))
    notes_.push_back(fmt::format("{} contains a whole model; this run's adapter will replace it",
                                 config_.output_dir));
}

// The base model's files have no rows for new tokens, or spare rows that were never trained, so an
// adapter saved without these rows would be unusable.
void Session::save_new_token_rows() {
  auto& saved = config_.lora_modules_to_save;
  const bool roles_alone = config_.new_tokens.empty() && config_.new_special_tokens.empty();
  std::vector<std::string> needed{"embed_tokens"};
  if (!source_->config.tied) needed.push_back("lm_head");
  for (const auto& name : needed) {
    if (std::find(saved.begin(), saved.end(), name) != saved.end()) continue;
    saved.push_back(name);
    notes_.push_back(
        fmt::format("{} requires {} to be trained and saved with the adapter: added it to "
                    "lora_modules_to_save",
                    roles_alone ? "special_tokens" : "new_tokens", name));
  }
}

// A model with 4-bit weights stays in 4 bits if only adapters are trained. Full fine-tuning
// dequantizes it.
void Session::decide_four_bit() {
  if (config_.use_peft && config_.pissa)
    throw_recipe_error("init_lora_weights: pissa changes the base weights, and those of " +
                       source_->folder + " are in 4 bits");
  if (config_.load_in_8bit || config_.fp8 == Fp8::base) {
    const std::string key = config_.load_in_8bit ? "load_in_8bit" : "fp8";
    throw_recipe_error(key + ": " + source_->folder + " has 4-bit weights already; remove " + key);
  }
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

void Session::join(const Fingerprint& task) {
  if (source_->weights) model_digest_ = weights_digest(*source_->weights);
  comm_ = joining_->take();
  request_->device_index = device_index_;
  device_ = open_device(*request_);  // in this thread too
  if (!comm_) comm_ = start_times_->measure("communicator", [&] { return connect(*request_); });
  rejoinable_ = dynamic_cast<comm::RejoinableComm*>(comm_.get());
  if (takes_a_place()) return;
  auto inputs = shared_settings(config_);
  for (const auto& [key, value] : task) inputs[key] = value;
  inputs["model_name_or_path"] = model_digest_;
  require_same_inputs(inputs, *comm_, device_);
}

void Session::choose_algorithms(const StepOutcome& outcome) {
  if (!gemms_ || !outcome.new_products) return;
  const StepReports::Phase phase(step_reports_, "algorithms");
  if (const auto note = gemms_->choose(outcome.step); !note.empty()) reporter_->note(note);
}

void Session::check_trace_steps() const {
  if (config_.trace_steps.empty() || config_.trace_steps.back() <= total_steps_) return;
  throw_recipe_error(fmt::format("trace_steps: step {} is out of range: this run has {} steps",
                                 config_.trace_steps.back(), total_steps_));
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
  // A run that was already complete keeps the results that it wrote when it trained.
  if (first_step_began_)
    reporter_->summary(whole_run);
  else if (end_reason_ == EndReason::complete)
    reporter_->note("nothing to train: all steps are done; resume_from_checkpoint: no starts over");
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

void Session::check_gradient(std::int64_t step, const StepOutcome& outcome) {
  const bool stops = config_.on_non_finite == NonFinite::stop;
  not_finite_in_a_row_ = outcome.skipped ? not_finite_in_a_row_ + 1 : 0;
  if (!outcome.skipped) return;
  if (outcome.loss_scale) {
    if (gives_up(*outcome.loss_scale, stops))
      throw std::runtime_error(overflow_error(step, *outcome.loss_scale));
    return reporter_->note(overflow_note(step, *outcome.loss_scale));
  }
  const auto what = fmt::format("step {}: the gradient is not finite", step);
  if (stops)
    throw std::runtime_error(what +
                             ", so the weights were not updated; lower learning_rate, check the "
                             "data and the rewards, or set on_non_finite: skip");
  if (not_finite_in_a_row_ >= kMostNotFinite)
    throw std::runtime_error(fmt::format(
        "{}, as in {} steps in a row, which did not change the weights; check the weights that "
        "training began with and the data, or lower learning_rate",
        what, kMostNotFinite));
  reporter_->note(what + "; the step is skipped");
}

}  // namespace mgpu::train
