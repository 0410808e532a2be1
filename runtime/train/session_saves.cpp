// The part of Session that saves checkpoints and the final model.
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/train/session.hpp"

namespace mgpu::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kNewsEvery{100};  // of a lost rank

double seconds_from(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

void Session::save_now() {
  if (last_saved_ == progress_.step) {
    save_requested_ = false;
    return;
  }
  const StepReports::Phase phase(step_reports_, "checkpoint");
  const auto begin = Clock::now();
  report_save(true);  // one is written at a time
  progress_.updates = learner_->optimizer().steps_taken();
  progress_.loss_scale = learner_->loss_scale_state();
  const auto gemms = gemms_ ? gemms_->table() : std::nullopt;
  progress_.gemms = gemms ? gemm_table_json(*gemms) : nlohmann::json();
  oom_.pieces = static_cast<std::int64_t>(learner_->pieces());
  progress_.oom.reset();
  if (!oom_.changes.empty() || oom_.pieces > 1) progress_.oom = oom_;
  progress_.log_history = nlohmann::json::parse(reporter_->log_history());
  const bool last = progress_.step >= total_steps_ || end_reason_ != EndReason::complete;
  last_checkpoint_ = saver_->save(progress_, last);
  last_saved_ = progress_.step;
  save_requested_ = false;
  if (const auto note = saver_->take_note()) reporter_->note(*note);
  saving_ = RunningSave{.step = progress_.step,
                        .path = last_checkpoint_,
                        .in_background = saver_->running(),
                        .begin = begin,
                        .stalled_seconds = seconds_from(begin)};
  report_save(false);
}

// A checkpoint never ends if its part on a lost rank is missing. In a collective this thread would
// be interrupted; here it looks for the news itself.
bool Session::save_has_ended(bool waits) {
  if (!saving_->in_background) return true;
  while (!saver_->ended(waits ? kNewsEvery : kNewsEvery.zero())) {
    if (!waits) return false;
    if (peers_ && peers_->requested(kNewsEvery.zero()))
      throw comm::PeerLost("a rank was lost while a checkpoint was written");
  }
  return true;
}

void Session::report_save(bool waits) {
  if (!saving_ || !save_has_ended(waits)) return;
  const auto save = *std::exchange(saving_, std::nullopt);
  if (save.in_background && !saver_->published()) {
    last_saved_ = -1;
    // All ranks wait for this checkpoint, and the one with the error is about to report it.
    if (waits) comm_->barrier("wait for the rank that could not write its part of a checkpoint");
    return;
  }
  const double held = save.in_background ? saver_->held_seconds() : 0;
  reporter_->note("saved " + save.path);
  if (const auto note = saver_->take_note()) reporter_->note(*note);
  reporter_->checkpoint({.step = save.step,
                         .in_background = save.in_background,
                         .stalled_seconds = save.stalled_seconds + held,
                         .seconds = seconds_from(save.begin)});
}

Requests Session::new_requests() {
  auto requests = requests_ ? requests_() : Requests{};
  requests.save = save_requests_.take(requests.save, progress_.step, Clock::now());
  return requests;
}

void Session::record_requests(const StepOutcome& outcome) {
  save_requests_.record(outcome.step, outcome.save_requested, Clock::now());
  stop_requested_ = stop_requested_ || outcome.stop_requested;
  save_requested_ = save_requested_ || outcome.save_requested;
}

void Session::abandon_save() {
  if (!saver_->abandon()) return;
  saving_.reset();
  last_saved_ = -1;
  save_requested_ = true;
}

void Session::export_model() {
  const StepReports::Phase phase(step_reports_, "checkpoint");
  if (config_.load_best_model_at_end && !best_checkpoint_.empty()) {
    saver_->publish_model(best_checkpoint_);
    if (progress_.best_metric)
      reporter_->note(fmt::format("the final model is that of {}, with the best {}: {:.4g}",
                                  best_checkpoint_, best_metric_name(), *progress_.best_metric));
  } else if (last_saved_ == progress_.step) {
    saver_->publish_model(last_checkpoint_);
  } else {
    saver_->write_final_model();
  }
}

void Session::save_last() {
  if (trace_) trace_->finish();
  const bool saves = config_.save_strategy != When::no || end_reason_ == EndReason::stopped;
  if (last_saved_ != progress_.step && saves && progress_.step > 0) save_now();
  {
    const StepReports::Phase phase(step_reports_, "checkpoint");
    report_save(true);
  }
  if (end_reason_ != EndReason::stopped && config_.save_final_model) export_model();
}

}  // namespace mgpu::train
