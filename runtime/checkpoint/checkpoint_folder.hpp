#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/checkpoint/manifest.hpp"

namespace mgpu::checkpoint {

// A checkpoint that is being written: the folder OUTPUT/.checkpoint-N.tmp-*, which publish()
// renames to OUTPUT/checkpoint-N. Whenever the process dies, there is either the complete
// checkpoint or none, and an older one of the same step is replaced only by a complete one.
// Destroying an unpublished draft removes it.
//
//   mkdir .checkpoint-8.tmp-*  ->  files, each fsynced  ->  manifest.json  ->  fsync the folder
//     ->  rename to checkpoint-8  ->  fsync OUTPUT
//
// One process owns the draft. Other processes may write files into path() before it publishes.
class CheckpointDraft {
 public:
  CheckpointDraft(std::string output_dir, std::int64_t step);
  CheckpointDraft(const CheckpointDraft&) = delete;
  CheckpointDraft& operator=(const CheckpointDraft&) = delete;
  ~CheckpointDraft();

  const std::string& path() const { return path_; }
  std::string target() const;  // the path of the checkpoint, once it is published

  // `known`: files whose writers already computed the checksum. Other files are read and fsynced
  // here. Returns the path of the checkpoint.
  std::string publish(const std::vector<FileRecord>& known,
                      const std::map<std::string, std::string>& versions);

 private:
  std::vector<FileRecord> records(const std::vector<FileRecord>& known) const;

  std::string output_dir_, path_;
  std::int64_t step_;
};

struct FoundCheckpoint {
  std::string path;  // empty: none found
  std::int64_t step = 0;
  std::vector<std::string> skipped;  // newer, unusable checkpoints: a line with the reason each
};

// The newest checkpoint in a folder whose files are all exactly as saved. `usable`, if given, is
// called first; it throws with the reason if the caller cannot use the checkpoint.
FoundCheckpoint find_newest_complete(
    const std::string& output_dir, int threads = 1,
    const std::function<void(const Manifest& manifest)>& usable = {});

// Whether the folder has a checkpoint by its name, complete or not. Does not throw.
bool has_checkpoint(const std::string& output_dir) noexcept;

// Removes the oldest checkpoints until `limit` are left (0: keeps all). The newest and those of the
// steps in `kept` are never removed, so more than `limit` may be left. Folders without a manifest
// of ours are neither counted nor touched. Returns the removed paths. One that cannot be removed
// does not keep the others: its error is thrown at the end.
std::vector<std::string> rotate(const std::string& output_dir, std::int64_t limit,
                                const std::vector<std::int64_t>& kept = {});

// Removes all checkpoints with a manifest of ours. Returns their paths.
std::vector<std::string> remove_all(const std::string& output_dir);

// Removes files and folders that killed saves and removals left behind. No save may run in the
// folder at the same time.
std::vector<std::string> remove_unfinished_saves(const std::string& output_dir);

}  // namespace mgpu::checkpoint
