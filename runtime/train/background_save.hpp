#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rendezvous/contract.hpp"
#include "runtime/checkpoint/checkpoint_folder.hpp"
#include "runtime/train/snapshot.hpp"

namespace mgpu::train {

// What is left to do for a checkpoint when its tensors are in a snapshot.
struct SaveJob {
  std::string folder;  // of the draft
  // On rank 0 only.
  std::unique_ptr<checkpoint::CheckpointDraft> draft = {};
  std::vector<checkpoint::FileRecord> known = {};  // files that are in the folder already
  std::function<void()> write_small_files = {};
  // Gives the draft its name.
  std::function<void(checkpoint::CheckpointDraft& draft,
                     const std::vector<checkpoint::FileRecord>& records)>
      publish = {};
  // Called when the other ranks know that the checkpoint is complete. Its error is only a note.
  std::function<void()> remove_older = {};
};

// Writes one checkpoint at a time while training continues: every rank has a thread for its part,
// and that of rank 0 publishes the checkpoint when all parts are complete. The calls are for the
// thread that trains.
class BackgroundSave {
 public:
  // Both must outlive this object.
  BackgroundSave(const rendezvous::Contract& contract, Snapshot& snapshot);
  ~BackgroundSave() { abandon(); }
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // Begins to write the snapshot. None may be running.
  void begin(SaveJob job);
  bool running() const { return begun_; }
  // Whether the checkpoint that was begun last has ended; waits for that, at most this long. True
  // once for each. Throws the error that has ended it on this rank. If another rank has failed,
  // that one throws its error, and published() returns false here.
  bool ended(std::chrono::milliseconds limit);
  // After ended(): whether the checkpoint has its name.
  bool published() const { return published_; }
  // Why older checkpoints are still there, once.
  std::optional<std::string> take_note() { return std::exchange(note_, std::nullopt); }
  // Gives up the checkpoint that is being written and returns true. If it is complete or has
  // failed, returns false, and ended() is to be called. Another rank may see it complete, if rank 0
  // was just publishing it.
  bool abandon();

 private:
  bool write(SaveJob& job, const std::stop_token& stop);
  void remove_older(const SaveJob& job);
  bool write_own_part(const SaveJob& job, const std::stop_token& stop);

  const rendezvous::Contract& contract_;
  Snapshot& snapshot_;
  std::string previous_, current_;  // names of checkpoints in the store
  bool begun_ = false;              // and ended() has not returned true yet
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;  // the thread has ended; guarded by the mutex
  // Of the thread, until it has ended.
  bool published_ = false;
  std::exception_ptr error_;
  std::optional<std::string> note_;
  std::jthread thread_;
};

// How many threads write files beside training.
int background_writers();

}  // namespace mgpu::train
