#pragma once

#include <string>

#include "launcher/options/options.hpp"
#include "launcher/plan/plan.hpp"

namespace mgpu::launcher {

// The text before the lines of a rank: the template of --log-line-prefix-template with its
// variables replaced, else "[<role><local rank>]:". `host` is this node's name.
std::string rank_prefix(const Options& options, const RankSpec& spec, int node_rank,
                        const std::string& host);

}  // namespace mgpu::launcher
