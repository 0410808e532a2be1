#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/checkpoint/manifest.hpp"

namespace mgpu::checkpoint {

// A checkpoint while it is written: the folder OUTPUT/.checkpoint-N.tmp-*, which publish() turns
// into OUTPUT/checkpoint-N. Whenever the process dies, there is either the whole checkpoint or
// none, and an older one of the same step is replaced only by a whole one. Destroying a draft
// that was not published removes it.
//
//   mkdir .checkpoint-8.tmp-*  ->  files, each fsynced  ->  manifest.json  ->  fsync the folder
//     ->  rename to checkpoint-8  ->  fsync OUTPUT
//
// One process owns the draft; others may write files into path() before it publishes.
class CheckpointDraft {
 public:
  CheckpointDraft(std::string output_dir, std::int64_t step);
  CheckpointDraft(const CheckpointDraft&) = delete;
  CheckpointDraft& operator=(const CheckpointDraft&) = delete;
  ~CheckpointDraft();

  const std::string& path() const { return path_; }

  // `known`: files whose checksums their writers have already told; the others are read and made
  // durable here. Returns the path of the checkpoint.
  std::string publish(const std::vector<FileRecord>& known,
                      const std::map<std::string, std::string>& versions);

 private:
  std::vector<FileRecord> records(const std::vector<FileRecord>& known) const;

  std::string output_dir_, path_;
  std::int64_t step_;
};

struct FoundCheckpoint {
  std::string path;  // empty: there is none
  std::int64_t step = 0;
  std::vector<std::string> skipped;  // newer ones that cannot be used, with the reason, a line each
};

// The newest checkpoint of a folder whose every byte is what was saved. `usable`, if given, is
// asked first and throws what is wrong with one that the caller cannot use.
FoundCheckpoint find_newest_complete(
    const std::string& output_dir, int threads = 1,
    const std::function<void(const Manifest& manifest)>& usable = {});

// Removes the oldest checkpoints until `limit` are left (0: keeps all). The newest and those of the
// steps in `kept` stay always, so that a limit of 1 may leave more. Folders without a manifest of
// ours are neither counted nor touched. Returns the paths that are gone.
std::vector<std::string> rotate(const std::string& output_dir, std::int64_t limit,
                                const std::vector<std::int64_t>& kept = {});

// Removes what killed saves and removals have left. Nobody may be saving there meanwhile.
std::vector<std::string> remove_leftovers(const std::string& output_dir);

}  // namespace mgpu::checkpoint
