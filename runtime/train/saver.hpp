#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint_folder.hpp"
#include "runtime/checkpoint/final_model.hpp"
#include "runtime/train/learner.hpp"
#include "runtime/train/model_source.hpp"
#include "runtime/train/progress.hpp"

namespace mgpu::train {

// The checkpoint to resume from: `wanted`, the value of resume_from_checkpoint, is a path, or
// requests the newest complete one of `output_dir`. No path: there is none, or `wanted` is `no`.
// Only rank 0 searches. It reads all bytes of the checkpoint to verify them.
checkpoint::FoundCheckpoint search_checkpoint(const std::string& output_dir,
                                              const std::string& wanted);

// Writes and reads checkpoints. OUTPUT/checkpoint-STEP holds the model in Hugging Face's layout or
// the adapter in PEFT's, the tokenizer, trainer_state.json and, unless save_only_model is set, the
// training state. All ranks make every call together. A checkpoint's folder appears under its name
// only when it is complete.
class Saver {
 public:
  Saver(const TrainConfig& config, const ModelSource& source, Learner& learner);

  // Adds a part to the training state. The function writes this rank's file into the folder and
  // returns its record, or nothing; all ranks must agree on which. A file without a record is read
  // again for its checksum.
  using StatePart = std::function<std::optional<checkpoint::FileRecord>(const std::string& folder)>;
  void add_state_part(StatePart write) { write_parts_.push_back(std::move(write)); }

  // Writes a checkpoint and returns its path.
  std::string save(const Progress& progress);

  // Returns the path that search_checkpoint found on rank 0; the other ranks pass nothing. Removes
  // what killed saves have left.
  std::string share(const checkpoint::FoundCheckpoint& found);
  Progress read_progress(const std::string& checkpoint) const;
  // Loads the weights from a checkpoint and, for an adapter, from the base model.
  void load_model(const std::string& checkpoint);
  // Creates the optimizer with the state of a checkpoint that has this progress; after load_model.
  void load_state(const std::string& checkpoint, const Progress& progress);

  // Copies the model's files from a checkpoint to OUTPUT, in place of the model there. They are
  // copies and not links, so that editing them leaves the checkpoint intact.
  void publish_model(const std::string& checkpoint);
  // Writes the model that the ranks hold now to OUTPUT, without a checkpoint.
  void write_final_model();

  // Writes only the adapter that the ranks hold now, in PEFT's layout, with the values that the
  // model computes with: a server that generates must have the same ones.
  void write_adapter(const std::string& folder);

 private:
  enum class AdapterBits {
    master,   // of the master weights
    rounded,  // of the weights that the model computes with
  };

  std::string model_folder(const std::string& folder) const;
  std::vector<checkpoint::FileRecord> write_model(const std::string& folder);
  void write_metadata(const std::string& folder) const;
  std::vector<checkpoint::FileRecord> write_all_weights(const std::string& folder);
  std::vector<checkpoint::FileRecord> write_adapter_weights(const std::string& folder,
                                                            AdapterBits bits);
  void write_adapter_config(const std::string& folder) const;
  checkpoint::FinalModelDraft::Replaced replaced_models() const;
  std::string share_text(const std::string& text) const;
  std::vector<checkpoint::FileRecord> gather(const checkpoint::FileRecord& own) const;
  checkpoint::FileRecord write_own_state(const std::string& folder) const;

  const TrainConfig& config_;
  const ModelSource& source_;
  Learner& learner_;
  std::vector<StatePart> write_parts_;
};

}  // namespace mgpu::train
