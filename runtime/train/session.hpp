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
#include "runtime/config/config.hpp"
#include "runtime/train/adapter.hpp"
#include "runtime/train/learner.hpp"
#include "runtime/train/model_source.hpp"
#include "runtime/train/reporter.hpp"
#include "runtime/train/saver.hpp"

namespace mgpu::train {

// Why training ended.
enum class EndReason {
  complete,  // all steps are done
  stopped,   // somebody asked for it; a checkpoint was saved
  early,     // early stopping
};

// What every way of training stands on: a model, the ranks of a job, and weights that learn. Those
// who derive from it call, in this order: open_model(), join(), build(), begin().
class Session {
 public:
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Asked before every step whether somebody wants a checkpoint or the end; none by default.
  void set_requests(std::function<Requests()> requests) { requests_ = std::move(requests); }

  // As it is carried out: what was left to us is settled in setup().
  const TrainConfig& config() const { return config_; }
  EndReason end_reason() const { return end_reason_; }
  std::int64_t step() const { return progress_.step; }
  std::int64_t total_steps() const { return total_steps_; }
  Learner& learner() { return *learner_; }

 protected:
  Session(TrainConfig config, rendezvous::Contract contract);
  ~Session();

  // The model's files, and those of an adapter to go on from.
  void open_model();
  // The device and the other ranks.
  void join();
  // Weights without values, the optimizer, the saver. What is left to us about
  // memory is settled for the batches that config_ asks for now.
  void build();
  // Values for the weights: from the newest checkpoint, which moves progress_, else from the
  // model's files. Gives the checkpoint's path, or an empty one.
  std::string begin(std::int64_t global_batch);
  // The reporter, and what there is to say before the first step.
  void begin_report(const std::string& checkpoint);

  // What an evaluation asks for, by metric_for_best_model: that this model be kept as the best, or
  // that training end, which there is a note about.
  struct BestModelDecision {
    bool keep = false, stop = false;
  };
  BestModelDecision evaluate_best_model(const std::map<std::string, double>& metrics);

  bool log_due() const;
  bool due(double every, When strategy, bool epoch_ends) const;
  void save_now();
  void export_model();
  // The last checkpoint and the model, if they are wanted.
  void save_last();

  TrainConfig config_;
  rendezvous::Contract contract_;
  std::function<Requests()> requests_;
  std::optional<ModelSource> source_;
  std::optional<AdapterSource> adapter_;  // to go on from
  std::vector<std::string> notes_;        // for the reporter, once there is one
  std::optional<int>
      device_index_;  // where it is not that of the local rank's number; before join()
  at::Device device_ = at::kCPU;
  std::unique_ptr<comm::Comm> comm_;
  std::int64_t gpu_bytes_ = 0;       // of the smallest GPU of all ranks; 0: there is none
  std::int64_t planned_bytes_ = 0;   // of this rank's GPU
  std::int64_t reserved_bytes_ = 0;  // there for others than the learner; before build()
  std::unique_ptr<Learner> learner_;
  std::unique_ptr<Saver> saver_;
  std::unique_ptr<Reporter> reporter_;
  Progress progress_;
  std::int64_t total_steps_ = 0;
  std::string last_checkpoint_, best_checkpoint_;
  std::int64_t last_saved_ = -1;
  bool save_wanted_ = false;
  EndReason end_reason_ = EndReason::complete;

 private:
  void decide_four_bit();
  void save_new_token_rows();
  void decide_memory_options();
};

}  // namespace mgpu::train
