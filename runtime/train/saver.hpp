#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/contract.hpp"
#include "runtime/checkpoint/checkpoint_folder.hpp"
#include "runtime/train/background_save.hpp"
#include "runtime/train/learner.hpp"
#include "runtime/train/model_files.hpp"
#include "runtime/train/model_source.hpp"
#include "runtime/train/progress.hpp"
#include "runtime/train/snapshot.hpp"
#include "runtime/train/training_state.hpp"

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
  // All must outlive this object.
  Saver(const TrainConfig& config, const rendezvous::Contract& contract, const ModelSource& source,
        Learner& learner);

  // Adds a part to the training state. The function writes this rank's file into the folder and
  // returns its record, or nothing; all ranks must agree on which. A file without a record is read
  // again for its checksum. The part is written before save() returns.
  using StatePart = std::function<std::optional<checkpoint::FileRecord>(const std::string& folder)>;
  void add_state_part(StatePart write) { write_parts_.push_back(std::move(write)); }

  // PiSSA: see begin_with_pissa.
  void set_appended(Appended appended) { model_files_.set_appended(std::move(appended)); }

  // Writes a checkpoint and returns its path. Unless async_save is off or host memory is missing,
  // it only copies to host memory, or begins to: a BackgroundSave does the rest, and running()
  // returns true. `last` is whether training ends: memory is not reserved for that alone. No other
  // checkpoint may be running.
  std::string save(const Progress& progress, bool last);
  bool running() const { return writer_.running(); }
  // See BackgroundSave.
  bool ended(std::chrono::milliseconds limit);
  bool published() const { return writer_.published(); }
  // Gives up the checkpoint that is being written, if any; see BackgroundSave. The ranks decide
  // anew whether they have the memory for the next one, because one of them may be a new process.
  bool abandon();
  // Call it before the weights or the optimizer's state change.
  void hold_updates() { snapshot_.hold_updates(); }
  // How long the last hold_updates() has held up the device; after ended().
  double held_seconds() { return snapshot_.held_seconds(); }
  // Why checkpoints are not written in the background or older ones were not removed, once. After
  // save() and ended().
  std::optional<std::string> take_note() { return std::exchange(note_, std::nullopt); }

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
  using Records = std::vector<checkpoint::FileRecord>;

  // The checkpoint that is being written; the draft is on rank 0.
  struct Draft {
    std::unique_ptr<checkpoint::CheckpointDraft> own;
    std::string folder, target;
  };
  // What this rank writes from tensors on its device.
  struct OwnFiles {
    std::vector<Snapshot::File> files;
    std::vector<NamedTensor> state;
    std::string index;  // the text of the index of the model's files; empty: there is none
  };

  Draft begin_draft(std::int64_t step) const;
  OwnFiles own_files() const;
  bool has_memory_for(const OwnFiles& files, bool last);
  void take_snapshot(const OwnFiles& files);
  Records write_parts(const std::string& folder) const;
  void save_in_background(Draft draft, OwnFiles files, const Progress& progress);
  void save_at_once(Draft draft, const Progress& progress);
  Records write_model(const std::string& folder);
  std::string share_text(const std::string& text) const;
  Records gather(const checkpoint::FileRecord& own) const;
  checkpoint::FileRecord write_own_state(const std::string& folder) const;

  const TrainConfig& config_;
  const rendezvous::Contract& contract_;
  const ModelSource& source_;
  Learner& learner_;
  ModelFiles model_files_;
  std::vector<StatePart> write_parts_;
  std::optional<bool> in_background_;  // empty: the ranks have not decided yet
  std::optional<std::string> note_;
  Snapshot snapshot_;
  BackgroundSave writer_;  // uses all of the above
};

}  // namespace mgpu::train
