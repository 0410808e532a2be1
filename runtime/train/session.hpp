#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/contract.hpp"
#include "runtime/comm/comm.hpp"
#include "runtime/comm/rejoinable_comm.hpp"
#include "runtime/config/config.hpp"
#include "runtime/config/planning/oom_remedies.hpp"
#include "runtime/model/flops.hpp"
#include "runtime/train/adapter.hpp"
#include "runtime/train/background.hpp"
#include "runtime/train/job_gemms.hpp"
#include "runtime/train/launcher_link.hpp"
#include "runtime/train/learner.hpp"
#include "runtime/train/model_source.hpp"
#include "runtime/train/own_store.hpp"
#include "runtime/train/peer_replacement.hpp"
#include "runtime/train/rank_device.hpp"
#include "runtime/train/rank_places.hpp"
#include "runtime/train/reporter.hpp"
#include "runtime/train/save_requests.hpp"
#include "runtime/train/saver.hpp"
#include "runtime/train/start_times.hpp"
#include "runtime/train/step_trace.hpp"
#include "runtime/train/training_stats.hpp"

namespace mgpu::train {

// Why training ended.
enum class EndReason {
  complete,  // all steps are done
  stopped,   // a stop was requested; a checkpoint was saved
  early,     // early_stopping_patience or loss_watchdog_patience ran out
};

// What all training tasks share: the model's files, the communicator, the Learner, checkpoints and
// reports. A derived class calls begin_start(), open_model(), join(), build(), begin(), load() and
// begin_report() in this order.
class Session {
 public:
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // `requests` returns whether a checkpoint or a stop is requested. It is called before every step,
  // and several times per second while completions are generated. By default nothing is requested.
  void set_requests(std::function<Requests()> requests) { requests_ = std::move(requests); }

  // The configuration in effect: setup() replaces every `auto` by the chosen value.
  const TrainConfig& config() const { return config_; }
  // The memory plan of the learner, once it has been made.
  const std::optional<PlanRequest>& memory_plan() const { return memory_plan_; }
  EndReason end_reason() const { return end_reason_; }
  std::int64_t step() const { return progress_.step; }
  std::int64_t total_steps() const { return total_steps_; }
  // Of this rank. Rank 0 also writes them to training_status.json at every report.
  TrainingStats training_stats() const;
  Learner& learner() { return *learner_; }

 protected:
  Session(TrainConfig config, rendezvous::Contract contract);
  ~Session();

  // Begins what needs no file of the model, in threads of its own: looking for a checkpoint, and
  // what join() waits for.
  void begin_start();
  // Opens the model's files, and those of the adapter to continue from, if any.
  void open_model();
  // Waits until the device is open and connects to the other ranks, which must train on the same as
  // this one; `task` is what the task adds to the fingerprint of the run.
  void join(const Fingerprint& task);
  // Creates the learner and the saver; the weights have no values yet. Chooses the memory options
  // that are `auto` (zero_stage, gradient_checkpointing) for the batch sizes in config_.
  void build();
  // Returns the path of the checkpoint to resume from, which also sets progress_, or an empty
  // string. `task` is that of join(). Throws if the checkpoint is of another run.
  std::string begin(std::int64_t global_batch, const Fingerprint& task);
  // Loads the weights and the optimizer's state, from the checkpoint or else from the model's
  // files, and calls `meanwhile`: with a GPU at the same time.
  void load(const std::string& checkpoint, const std::function<void()>& meanwhile = {});
  // The same for a process that takes a lost rank's place: loads only what no other rank sends.
  void begin_as_replacement(std::int64_t global_batch, const Fingerprint& task);
  // Creates the reporter and reports where the ranks run, and from where the run resumes. A
  // collective.
  void begin_report(const std::string& checkpoint);

  // Learner::divide_micro_batches after a step of this outcome, with a note. If it cannot divide
  // further, a restart uses another remedy.
  void divide_micro_batches(const StepOutcome& outcome, std::int64_t step);

  // To be called with the outcome of each step before the step after next begins: the products that
  // it had first get an algorithm.
  void choose_algorithms(const StepOutcome& outcome);

  // Reports an interval of steps, or the end of training, and updates training_status.json.
  void report_interval(const Interval& interval);
  void report_end(const Interval& whole_run);

  // What follows from an evaluation: `keep` saves this model as the best so far, `stop` ends
  // training early.
  struct BestModelDecision {
    bool keep = false, stop = false;
  };
  // Compares metric_for_best_model with the best value so far and updates progress_. Reports a note
  // when training stops early.
  BestModelDecision evaluate_best_model(const std::map<std::string, double>& metrics);
  std::string best_metric_name() const;  // as an evaluation reports it

  // Whether this process takes the place of a lost rank in a job that goes on.
  bool takes_a_place() const { return contract_.replacement.value_or(0) > 0; }

  bool log_due() const;
  bool due(double every, When strategy, bool epoch_ends) const;
  void step_begins();  // before anything of the step that follows progress_.step
  void step_ends();    // after progress_.step has moved past it
  // Notes a step that was skipped because its gradient is not finite. Throws if that ends the run:
  // with on_non_finite: stop, or if many steps in a row were skipped and a loss scale cannot help.
  void check_gradient(std::int64_t step, const StepOutcome& outcome);
  // Saves a checkpoint unless this step has one. It may be complete only when report_save() has
  // reported it.
  void save_now();
  // Reports the checkpoint that was saved last, once it is complete; with `waits` it waits for
  // that. Throws the error that has ended it on this rank.
  void report_save(bool waits);
  // What is requested of this rank since the last call, for the step that follows progress_.step.
  Requests new_requests();
  // Notes what is requested after a step, on any rank.
  void record_requests(const StepOutcome& outcome);
  // Gives up a checkpoint that is being written, after a rank was lost: it is saved again after
  // the next step.
  void abandon_save();
  // Writes the final or the best model to output_dir itself.
  void export_model();
  // Saves the last checkpoint and the final model, as the recipe requests.
  void save_last();

  TrainConfig config_;
  rendezvous::Contract contract_;
  std::unique_ptr<rendezvous::store::BackgroundServer> own_store_;  // or null
  std::function<Requests()> requests_;
  std::optional<ModelSource> source_;
  std::optional<AdapterSource> adapter_;  // the adapter to continue from
  std::vector<std::string> notes_;        // reported once there is a reporter
  std::optional<int> device_index_;       // set before join() if it is not gpu_of(local rank)
  at::Device device_ = at::kCPU;
  std::shared_ptr<PeerReplacement> peers_;  // null: a lost rank is not replaced
  std::unique_ptr<comm::Comm> comm_;
  comm::RejoinableComm* rejoinable_ = nullptr;  // comm_, if lost ranks can be replaced
  std::int64_t gpu_bytes_ = 0;                  // of the smallest GPU of all ranks; 0: no GPUs
  std::int64_t planned_length_ = 0;             // tokens of the longest sequence; 0: max_length
  int not_finite_in_a_row_ = 0;                 // skipped steps in a row
  bool refuses_too_large_ = false;          // build() throws RecipeError if the job does not fit
  OomState oom_;                            // of this attempt
  std::optional<PlanRequest> memory_plan_;  // with the chosen settings; set by build()
  std::int64_t planned_bytes_ = 0;          // estimate for the fullest GPU
  std::vector<std::int64_t> rank_gpus_;     // see Reporter::Facts
  std::vector<RankPlace> places_;           // of all ranks; set by begin_report()
  std::vector<at::Device> other_devices_;
  std::int64_t reserved_bytes_ = 0;  // not for the learner; set before build()
  std::unique_ptr<JobGemms> gemms_;  // null: gemm_choice is heuristic
  std::unique_ptr<Learner> learner_;
  model::TrainingFlops flops_;  // of the learner
  std::unique_ptr<Saver> saver_;
  std::unique_ptr<Reporter> reporter_;
  std::unique_ptr<StepTrace> trace_;  // null: no steps to record
  Progress progress_;
  std::int64_t total_steps_ = 0;
  std::string last_checkpoint_, best_checkpoint_;
  std::int64_t last_saved_ = -1;  // the step whose checkpoint is complete or being written
  bool save_requested_ = false, stop_requested_ = false;
  EndReason end_reason_ = EndReason::complete;
  StepReports step_reports_;  // to the launcher
  std::shared_ptr<StartTimes> start_times_ = std::make_shared<StartTimes>();
  bool first_step_began_ = false;

 private:
  SaveRequests save_requests_;
  // A checkpoint that was not reported yet.
  struct RunningSave {
    std::int64_t step = 0;
    std::string path;
    bool in_background = false;
    std::chrono::steady_clock::time_point begin;
    double stalled_seconds = 0;  // of this thread
  };
  std::optional<RunningSave> saving_;
  bool save_has_ended(bool waits);
  std::optional<Background<checkpoint::FoundCheckpoint>> search_;  // on rank 0
  std::optional<JoinRequest> request_;                             // set by begin_start()
  std::optional<Background<std::unique_ptr<comm::Comm>>> joining_;

  std::string model_digest_;  // set by join()
  Fingerprint fingerprint_with(const Fingerprint& task) const;
  void load_base_model();
  // Whether the adapter begins with values that follow from the weights, which all ranks compute
  // together.
  bool begins_together() const;
  void begin_together();
  void create_first_optimizer();
  // Calls both, with a GPU at the same time.
  void load_beside(const std::function<void()>& load_all, const std::function<void()>& meanwhile);
  void load_checkpoint(const std::string& checkpoint);
  void use_oom_remedies(PlanRequest& request);
  OomState remembered_oom();
  void record_oom(const OomState& state) const;
  void decide_four_bit();
  void save_new_token_rows();
  void write_status(const char* state);
  void decide_memory_options();
  ops::GemmChoices* open_gemms();
  void begin_gemms(const std::string& checkpoint);
  void check_trace_steps() const;
  void begin_trace();
  void resume(const std::string& checkpoint, std::int64_t global_batch,
              const Fingerprint& fingerprint);
  [[noreturn]] void refuse_batch(const std::string& checkpoint, std::int64_t global_batch) const;
  void find_best_model(std::int64_t step);
};

}  // namespace mgpu::train
