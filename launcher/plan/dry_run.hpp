#pragma once

#include <string>
#include <vector>

#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace mgpu::launcher {

// The first attempt as far as it is known before anything is started or made: a port that is not
// given is 0, a log folder has "XXXXXX" where its name is yet to be chosen.
Attempt planned_attempt(const Options& options);

// What would be started, for people and for programs: of each rank its command, the differences
// of its environment, its device, cores and logs, and where the ranks would meet.
std::string dry_run_text(const Options& options, const Placement& placement, const Attempt& attempt,
                         const std::vector<RankSpec>& specs);
std::string dry_run_json(const Options& options, const Placement& placement, const Attempt& attempt,
                         const std::vector<RankSpec>& specs);

// What a scheduler tells and by which variables: the head of a dry run. Empty: nothing.
std::string cluster_text(const Cluster& cluster);

// A word as a shell would have to read it; what a terminal would obey is written as an escape.
std::string shell_word(const std::string& word);

}  // namespace mgpu::launcher
