#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runtime/train/learner.hpp"
#include "runtime/train/model_source.hpp"

namespace mgpu::train {

// Where training stands, for trainer_state.json and for going on from it.
struct Progress {
  std::int64_t step = 0;  // steps taken
  double epoch = 0;
  std::int64_t global_batch = 0;  // items of a step
  std::uint64_t data_seed = 0;
  std::int64_t tokens = 0;   // seen so far
  std::int64_t updates = 0;  // steps that were not skipped
  std::optional<double> best_metric;
  std::optional<std::int64_t> best_step;
  std::int64_t evaluations_without_gain = 0;
  nlohmann::json log_history = nlohmann::json::array();
  nlohmann::json task_state;  // what the task has to know besides; null: nothing
};

nlohmann::json to_json(const Progress& progress);
Progress progress_from(const nlohmann::json& json, const std::string& file);

// Saves what all ranks hold into OUTPUT/checkpoint-STEP: the model in Hugging Face's layout or the
// adapter in PEFT's, the tokenizer, trainer_state.json, and the training state unless
// save_only_model. All ranks call it together; the folder appears when it is whole.
class Saver {
 public:
  Saver(const TrainConfig& config, const ModelSource& source, Learner& learner);

  // Another part of the training state: what writes it, if there is anything, and gives the record
  // of this rank's file. All ranks have something or none.
  using StatePart = std::function<std::optional<checkpoint::FileRecord>(const std::string& folder)>;
  void set_state_part(StatePart write) { write_part_ = std::move(write); }

  // Gives the checkpoint's path.
  std::string save(const Progress& progress);

  // The newest whole checkpoint as resume_from_checkpoint asks; rank 0 looks, all get the answer.
  // Empty: there is none, or none is wanted.
  std::string find();
  // Weights, moments and progress of a checkpoint.
  Progress load(const std::string& checkpoint);

  // The files of a checkpoint that are a model, copied: they are OUTPUT's own, and what a person
  // does to them leaves the checkpoint whole.
  void publish_model(const std::string& checkpoint);
  // The same of what the ranks hold now, without a checkpoint.
  void write_final_model();

  // The adapter that the ranks hold now, alone, in PEFT's layout. All ranks call it together.
  void write_adapter(const std::string& folder);

 private:
  std::string model_folder(const std::string& folder) const;
  std::vector<checkpoint::FileRecord> write_model(const std::string& folder);
  void write_metadata(const std::string& folder) const;
  std::vector<checkpoint::FileRecord> write_tensors(const std::string& folder);
  void write_adapter_config(const std::string& folder) const;
  std::string share_text(const std::string& text) const;
  std::vector<checkpoint::FileRecord> gather(const checkpoint::FileRecord& own) const;

  const TrainConfig& config_;
  const ModelSource& source_;
  Learner& learner_;
  StatePart write_part_;
};

}  // namespace mgpu::train
