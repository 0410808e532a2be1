#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/contract.hpp"
#include "runtime/comm/comm.hpp"
#include "runtime/config/batch_arithmetic.hpp"
#include "runtime/config/config.hpp"
#include "runtime/data/loader.hpp"
#include "runtime/data/prepare.hpp"
#include "runtime/data/schedule.hpp"
#include "runtime/optim/schedule.hpp"
#include "runtime/train/adapter.hpp"
#include "runtime/train/evaluation.hpp"
#include "runtime/train/learner.hpp"
#include "runtime/train/model_source.hpp"
#include "runtime/train/pacer.hpp"
#include "runtime/train/reporter.hpp"
#include "runtime/train/saver.hpp"

namespace mgpu::train {

// Why training ended.
enum class End {
  complete,  // all steps are done
  stopped,   // somebody asked for it; a checkpoint was saved
  early,     // early stopping
};

// Supervised fine-tuning of one model by all ranks of a job, from files to files. A program drives
// it so:
//   Trainer trainer(config, contract);
//   trainer.setup();
//   while (trainer.train_epoch()) {}
//   trainer.finish();
class Trainer {
 public:
  Trainer(TrainConfig config, rendezvous::Contract contract);
  ~Trainer();

  // Opens the model and the data, joins the other ranks, loads or resumes.
  void setup();

  // The part of setup() that needs no other device or rank: the model's files and the data.
  void open_files();

  // What became of the rows of each file, a line each; after open_files().
  std::vector<std::string> data_lines() const;

  // Trains to the end of the epoch, or of training; false when nothing is left to do.
  bool train_epoch();

  // Saves what is due, publishes the model, tells the summary, and parts from the others.
  void finish();

  // Asked before every step whether somebody wants a checkpoint or the end; none by default.
  void set_wishes(std::function<Wishes()> wishes) { wishes_ = std::move(wishes); }

  // As it is carried out: what was left to us is settled in setup().
  const TrainConfig& config() const { return config_; }
  End end() const { return end_; }
  std::int64_t step() const { return progress_.step; }
  std::int64_t total_steps() const { return total_steps_; }
  double last_loss() const { return last_loss_; }
  Learner& learner() { return *learner_; }

 private:
  void settle_four_bit();
  void settle_new_rows();
  void settle_batch();
  void settle_memory();
  void open_data();
  void join();
  void build();
  void plan_steps();
  void resume();
  void start_loader();
  data::Prepared prepare(const std::vector<DataSource>& sources);

  void settle();  // takes in the record of the step before
  void log_interval();
  void evaluate_now();
  void save_now();
  void leave_model();
  void judge(const std::map<std::string, double>& metrics);
  bool log_due() const;
  bool due(double every, When strategy, bool epoch_ends) const;
  double epoch_after(const data::StepBatches& batches);

  TrainConfig config_;
  rendezvous::Contract contract_;
  std::function<Wishes()> wishes_;

  std::optional<ModelSource> source_;
  std::optional<AdapterSource> adapter_;  // to go on from
  std::vector<std::string> notes_;        // for the reporter, once there is one
  at::Device device_ = at::kCPU;
  std::unique_ptr<comm::Comm> comm_;
  std::optional<data::Prepared> train_data_, eval_data_;
  const data::Dataset* evaluated_ = nullptr;  // what evaluations run over; null: none do
  data::Items eval_items_;
  std::optional<data::Schedule> plan_;
  std::optional<optim::Schedule> rates_;
  BatchPlan batch_;
  std::int64_t global_batch_ = 0;
  std::int64_t planned_bytes_ = 0;  // of this rank's GPU
  std::unique_ptr<Learner> learner_;
  std::unique_ptr<Saver> saver_;
  std::unique_ptr<Reporter> reporter_;
  std::unique_ptr<Pacer> pacer_;
  std::unique_ptr<data::Loader> loader_;
  std::optional<data::StepBatches> next_;

  struct InFlight {
    StepRecord record;
    std::int64_t step, labels, tokens, examples;
    std::vector<double> costs;  // of each rank's share
    double rate, epoch;
  };
  std::optional<InFlight> in_flight_;
  Interval interval_, whole_run_;
  Progress progress_;
  std::int64_t total_steps_ = 0;
  std::string last_checkpoint_, best_checkpoint_;
  std::int64_t last_saved_ = -1, last_evaluated_ = -1;
  bool stop_wanted_ = false, save_wanted_ = false, training_over_ = false;
  double last_loss_ = 0;
  End end_ = End::complete;
};

}  // namespace mgpu::train
