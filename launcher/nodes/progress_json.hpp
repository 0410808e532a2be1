#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "launcher/lifecycle/step_times.hpp"

namespace mgpu::launcher {

// The progress of ranks as `mgpu-run status` shows it, and as an agent reports it to the leader: an
// array with one object for each rank.
nlohmann::json progress_to_json(const std::vector<RankProgress>& ranks);
std::string progress_to_text(const std::vector<RankProgress>& ranks);

// Ignores what is missing or not valid, because the text comes from another process. Skew and
// stragglers are not read: the reader compares the ranks itself.
std::vector<RankProgress> progress_from_json(const std::string& text);

}  // namespace mgpu::launcher
