// Replacing a lost rank while the others keep their processes (docs/training.md).
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "rendezvous/base/untrusted_json.hpp"
#include "runtime/checkpoint/checkpoint_folder.hpp"
#include "runtime/comm/text.hpp"
#include "runtime/train/handover.hpp"
#include "runtime/train/trainer.hpp"

namespace mgpu::train {
namespace {

constexpr auto kNews = std::chrono::seconds(10);
constexpr const char* kProgressForNewRank = "broadcast of the progress for a new rank";

}  // namespace

// The state must be the same on all ranks, and everything else that a new process needs must follow
// from the recipe or be part of agree_on_state().
std::string Trainer::replacement_obstacle() const {
  if (config_.zero_stage != 0)
    return fmt::format(
        "zero_stage is {}, and only with zero_stage: 0 every rank has all of the "
        "training's state",
        config_.zero_stage);
  if (learner_->loss_scale_state()) return "dtype: fp16 is not supported";
  if (config_.batch_sharding == Sharding::adaptive)
    return "batch_sharding: adaptive is not supported";
  if (config_.load_best_model_at_end || config_.save_strategy == When::best)
    return "keeping the best model is not supported";
  if (config_.early_stopping_patience > 0) return "early stopping is not supported";
  if (config_.streaming) return "streaming is not supported";
  if (trace_) return "trace_steps is not supported";
  if (gemms_) return "gemm_choice: timed is not supported";
  if (config_.use_peft && config_.pissa) return "init_lora_weights: pissa is not supported";
  return {};
}

void Trainer::announce_readiness() {
  if (!peers_) return;
  if (const auto obstacle = replacement_obstacle(); obstacle.empty())
    peers_->set_ready(true);
  else
    reporter_->note("lost ranks are not replaced: " + obstacle);
}

void Trainer::end_readiness() {
  if (!peers_) return;
  peers_->set_ready(false);
  if (peers_->requested(kNews)) throw comm::PeerLost("a rank was lost at the end of training");
}

void Trainer::with_replacements(const std::function<void()>& work) {
  while (true) {
    try {
      return work();
    } catch (const comm::PeerLost&) {
      if (!peers_) throw;
    }
    replace_lost_peer();
  }
}

// On a GPU a step is queued before the one before it is known to be complete.
void Trainer::forget_step(const InFlight& step) {
  progress_.step = step.batches.step;
  progress_.epoch = step.epoch_before;
  step_finished_ = true;
}

void Trainer::replace_lost_peer() {
  if (!peers_->requested(kNews))
    throw std::runtime_error("a collective was interrupted, but no rank is being replaced");
  const StepReports::Phase phase(step_reports_, "replacement");
  try {
    consume_record();
  } catch (const comm::PeerLost&) {  // the step in flight is not complete: it is taken again
  }
  abandon_save();  // the lost rank's part may be missing
  loader_.reset();
  learner_->abandon_step();
  rejoinable_->rejoin(peers_->take());
  agree_on_state();
  places_ = gather_places(*comm_, device_);
  start_loader();
  comm_->barrier("barrier after replacing a rank");
  announce_readiness();
}

void Trainer::take_place() {
  rejoinable_->rejoin(*contract_.replacement);
  agree_on_state();
  // What the lost process was writing. No rank writes a checkpoint now.
  if (contract_.rank == 0) checkpoint::remove_unfinished_saves(config_.output_dir);
}

// The lost process may have ended before or after it reported what the other ranks had completed.
void Trainer::report_what_the_lost_rank_did_not() {
  if (contract_.rank != 0) return;
  const auto logged = last_logged_step(reporter_->log_history());
  if (logged == progress_.step) interval_ = {};
  if (last_report_.step > logged) report_interval(last_report_);
}

// Gives every rank the weights, the optimizer's state and the progress of the one that is furthest.
void Trainer::agree_on_state() {
  const bool is_new = !reporter_;
  RankPosition own;
  if (!is_new)
    own = {.steps = progress_.step,
           .follow_ups = (last_evaluated_ == progress_.step ? 1 : 0) +
                         (last_saved_ == progress_.step ? 1 : 0)};
  const auto positions = gather_positions(*comm_, own, device_);
  const int from = source_of_state(positions);
  const auto share = [&](const std::string& text) {
    return comm::share_text(*comm_, text, device_, kProgressForNewRank, from);
  };

  progress_.updates = learner_->optimizer().steps_taken();
  auto shared = progress_;
  shared.log_history = nlohmann::json::array();
  const nlohmann::json mine = {{"progress", progress_text(shared)},
                               {"zero_stage", config_.zero_stage},
                               {"recompute", static_cast<int>(config_.gradient_checkpointing)},
                               {"recomputed_layers", config_.recomputed_layers},
                               {"per_device", batch_.per_device},
                               {"accumulation", batch_.accumulation},
                               {"oom_changes", oom_.changes},
                               {"oom_jobs", oom_.jobs},
                               {"pieces", learner_->pieces()},
                               {"last_epoch", last_epoch_},
                               {"last_evaluated", last_evaluated_},
                               {"last_saved", last_saved_},
                               {"last_checkpoint", last_checkpoint_},
                               {"best_checkpoint", best_checkpoint_},
                               {"save_requested", save_requested_},
                               {"stop_requested", stop_requested_}};
  const auto state = rendezvous::parse_untrusted_json(share(mine.dump()));
  for (const char* key : {"zero_stage", "recompute", "recomputed_layers", "per_device",
                          "accumulation", "oom_changes"})
    if (state.at(key) != mine.at(key))
      throw std::runtime_error(fmt::format("{} is {} on this rank and {} on rank {}", key,
                                           mine.at(key).dump(), state.at(key).dump(), from));
  auto progress = parse_progress(state.at("progress").get<std::string>(), "the progress of a peer");
  if (progress.fingerprint != progress_.fingerprint)
    throw std::runtime_error("the recipe or the data has changed since the job started");
  progress.log_history = std::move(progress_.log_history);
  const bool same_step = own.steps == progress.step;
  progress_ = std::move(progress);
  oom_.jobs = state.at("oom_jobs").get<std::vector<std::string>>();
  learner_->set_pieces(state.at("pieces").get<std::size_t>());
  last_epoch_ = state.at("last_epoch").get<std::int64_t>();
  last_evaluated_ = state.at("last_evaluated").get<std::int64_t>();
  last_saved_ = state.at("last_saved").get<std::int64_t>();
  last_checkpoint_ = state.at("last_checkpoint").get<std::string>();
  best_checkpoint_ = state.at("best_checkpoint").get<std::string>();
  save_requested_ = state.at("save_requested").get<bool>();
  stop_requested_ = state.at("stop_requested").get<bool>();
  const auto interval = interval_of(share(bytes_of(interval_)));
  const auto whole_run = interval_of(share(bytes_of(whole_run_)));
  const auto report = interval_of(share(bytes_of(last_report_)));
  if (!same_step) {  // else this rank may still have to report the step itself
    interval_ = interval;
    whole_run_ = whole_run;
    if (reporter_ && report.step > last_report_.step) report_interval(report);
    last_report_ = report;
  }
  step_finished_ = progress_.step == 0;

  share_training_state(*learner_, from);
  learner_->optimizer().set_steps_taken(progress_.updates);
  for (std::size_t rank = 0; reporter_ && rank < positions.size(); ++rank)
    if (positions[rank].steps == RankPosition::kNew)
      reporter_->note(fmt::format("a new process took the place of rank {} after step {}", rank,
                                  progress_.step));
}

}  // namespace mgpu::train
