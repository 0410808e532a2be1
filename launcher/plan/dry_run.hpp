#pragma once

#include <string>
#include <vector>

#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace mgpu::launcher {

// The first attempt as far as it is known before anything is started or created: a port that is not
// given is 0, and "XXXXXX" stands for the part of a log folder's name that is chosen at the start.
Attempt planned_attempt(const Options& options);

// What would be started, as text and as JSON: for each rank the command, the changes of its
// environment, its device, cores and logs, and the master address.
std::string dry_run_text(const Options& options, const Placement& placement, const Attempt& attempt,
                         const std::vector<RankSpec>& specs);
std::string dry_run_json(const Options& options, const Placement& placement, const Attempt& attempt,
                         const std::vector<RankSpec>& specs);

// What a scheduler provides and in which variables: the beginning of a dry run. Empty: nothing.
std::string scheduler_text(const SchedulerJob& scheduler);

// Quotes a word for a shell; control characters are written as escapes.
std::string shell_word(const std::string& word);

}  // namespace mgpu::launcher
