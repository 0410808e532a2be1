#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/contract.hpp"
#include "runtime/config/config.hpp"
#include "runtime/config/planning/batch_arithmetic.hpp"
#include "runtime/data/loader.hpp"
#include "runtime/data/prepare.hpp"
#include "runtime/data/schedule.hpp"
#include "runtime/data/stream.hpp"
#include "runtime/data/text_encoder.hpp"
#include "runtime/optim/schedule.hpp"
#include "runtime/train/evaluation.hpp"
#include "runtime/train/pacer.hpp"
#include "runtime/train/session.hpp"

namespace mgpu::train {

// What Trainer::train_epoch() has done, on all ranks together. All ranks get the same numbers,
// except for the times, which are those of this rank.
struct EpochStats {
  std::int64_t steps = 0, samples = 0;
  double avg_loss = 0;    // mean over the target tokens of the epoch; skipped steps do not count
  double epoch_time = 0;  // seconds, with evaluations and checkpoints
  double avg_step_time = 0;
  bool more = false;  // training goes on with another epoch
};

// Supervised fine-tuning of one model on all ranks of a job, from reading the files to writing the
// trained model. Usage:
//   Trainer trainer(config, contract);
//   trainer.setup();
//   while (trainer.train_epoch().more) {}
//   trainer.finish();
class Trainer : public Session {
 public:
  Trainer(TrainConfig config, rendezvous::Contract contract);
  ~Trainer();

  // Opens the model and the data, connects to the other ranks, and loads the weights or resumes
  // from a checkpoint.
  void setup();

  // The part of setup() that needs neither a GPU nor a communicator: opens the model's files and
  // prepares the data.
  void open_files();

  // Lines that report how many rows of each file were used, cut or skipped. Call after
  // open_files().
  std::vector<std::string> data_lines() const;

  // Trains to the end of the epoch or of training.
  EpochStats train_epoch();

  // Saves the last checkpoint and the model, reports the summary, and disconnects from the other
  // ranks.
  void finish();

  double last_loss() const { return last_loss_; }

 private:
  struct InFlight {
    StepRecord record;
    data::StepBatches batches;  // to repeat the step
    Requests requests;
    double rate, epoch, flops;
    double epoch_before;
  };

  void train_tokenizer();
  void plan_step_batch();
  void adopt_micro_batch();
  void plan_memory();
  void open_data();
  void check_window(const data::Dataset& rows) const;
  std::vector<std::uint32_t> rows_to_leave_out(const data::Dataset& dataset, const char* use);
  data::ScheduleOptions schedule_options() const;
  void plan_steps();
  Fingerprint task_fingerprint() const;
  void load_or_resume();
  void start_loader();
  static std::size_t prefetched_steps(const TrainConfig& config);
  void train_to_the_end_of_the_epoch();
  void take_step();
  // What is due after the step that was taken last. Can be called again if a lost rank has
  // interrupted it.
  void finish_step();
  data::Prepared prepare(const std::vector<DataSource>& sources, const char* purpose);

  void save();
  // Reads the record of the step in flight, if any. Returns whether this step had to be repeated:
  // then a step that was queued after it has changed nothing and must be repeated too.
  bool consume_record();
  void watch_loss(std::int64_t step);
  void log_interval();
  void evaluate_now();
  double epoch_after(const data::StepBatches& batches);

  // Training on a stream (trainer_stream.cpp).
  void open_stream();
  void start_stream();
  void record_stream_place();
  std::optional<data::StepBatches> next_batches();

  // Replacing a lost rank (trainer_replacement.cpp).
  // Why this run cannot go on with a new process in a lost rank's place; empty: it can.
  std::string replacement_obstacle() const;
  void announce_readiness();
  void with_replacements(const std::function<void()>& work);
  void replace_lost_peer();
  void take_place();
  void agree_on_state();
  void report_what_the_lost_rank_did_not();
  void end_readiness();
  void forget_step(const InFlight& step);

  std::optional<data::Prepared> train_data_, eval_data_;
  std::string encoder_digest_;                   // of the tokenizer and the chat template
  const data::Dataset* eval_dataset_ = nullptr;  // null: no evaluations
  data::Items eval_items_;
  std::optional<data::Schedule> plan_;
  std::optional<optim::Schedule> rates_;
  BatchPlan batch_;
  std::int64_t global_batch_ = 0;
  std::unique_ptr<Pacer> pacer_;
  std::unique_ptr<data::TextEncoder> stream_encoder_;
  std::unique_ptr<data::Stream> stream_;  // instead of train_data_ and plan_
  std::unique_ptr<data::Loader> loader_;
  std::optional<data::StepBatches> next_;
  StepOutcome complete_outcome(const InFlight& step);
  StepOutcome repeat_until_it_fits(InFlight& step, StepOutcome outcome);
  std::optional<InFlight> in_flight_;
  std::int64_t last_epoch_ = 0;  // the number of the epoch of the step that was taken last
  bool step_finished_ = true;    // finish_step() has returned for it
  bool save_asked_ = false;      // in the step being taken
  Interval interval_, epoch_, whole_run_;
  Interval last_report_;  // the interval that was reported last
  std::int64_t last_evaluated_ = -1;
  bool training_over_ = false;
  double last_loss_ = 0;
  std::int64_t steps_of_high_loss_ = 0;  // in a row, see loss_watchdog_threshold
};

}  // namespace mgpu::train
