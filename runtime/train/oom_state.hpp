#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/train/progress.hpp"

namespace mgpu::train {

// In the output folder.
inline constexpr const char* kOomFile = "oom.json";

// What the checkpoint to resume from remembers. `wanted` is resume_from_checkpoint. Of the newest
// checkpoints, those that cannot be read are passed over; nothing if none can: training can do
// without.
std::optional<OomState> oom_in_checkpoint(const std::string& output_dir, const std::string& wanted);

// What an earlier attempt has left in kOomFile; nothing if it cannot be read.
std::optional<OomState> oom_in_file(const std::string& output_dir);

// What is known before an attempt, of a checkpoint and of kOomFile. `jobs` are the cookies of the
// attempt's nodes: an earlier attempt of the same job shares one of them. The result's oom_count is
// how many of MGPU_OOM_COUNT its changes have answered.
OomState remembered(const std::optional<OomState>& saved, const std::optional<OomState>& recorded,
                    std::int64_t oom_count, const std::vector<std::string>& jobs);

}  // namespace mgpu::train
