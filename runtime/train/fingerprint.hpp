#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/checkpoint/weights.hpp"
#include "runtime/config/config.hpp"

namespace mgpu::train {

// What a run trains on and how, as text by recipe key. A checkpoint records it, because its step
// number, epoch and order of rows have a meaning only for a run with the same fingerprint.
using Fingerprint = std::map<std::string, std::string>;

// The settings in it that all tasks have. The task adds its data and the tokenizer, as digests.
Fingerprint settings_fingerprint(const TrainConfig& config);

// The digest of data files, from the digest of each one's contents and its weight. Their paths do
// not matter.
std::string dataset_digest(const std::vector<DataSource>& sources,
                           const std::vector<std::string>& digests);

// The digest of a model's weights: of all names and shapes, and of a part of the values. The same
// weights in other files have the same digest.
std::string weights_digest(const checkpoint::Weights& weights);

// One phrase for each key with different values: "max_length is 64 and 32".
std::vector<std::string> differences_between(const Fingerprint& one, const Fingerprint& other);

// The differences between the run that saved a checkpoint and the one that continues from it, one
// phrase each: "max_length was 64 and is now 32". Keys that only one of them has are not compared:
// another version of this program may record more of them.
struct RunChanges {
  std::vector<std::string> other_run;  // it would be another run
  std::vector<std::string> allowed;    // a run may continue with them
};
RunChanges changes_between(const Fingerprint& saved, const Fingerprint& now);

// Throws RecipeError if the checkpoint is of another run, unless `accepts_changes`. Returns notes
// for the user.
std::vector<std::string> check_same_run(const std::string& checkpoint, const Fingerprint& saved,
                                        const Fingerprint& now, bool accepts_changes);

}  // namespace mgpu::train
