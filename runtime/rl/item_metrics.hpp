#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/rl/generation.hpp"
#include "runtime/rl/prompts.hpp"

namespace mgpu::rl {

// Metrics of a recommender, over groups of completions:
//   categorical_diversity  different completions / completions of a group, mean of the groups
//   token_diversity        different tokens / tokens, of all completions, without the end token
// and, if the first `ranked` completions of a group are in order, the best first (0: they are not),
// for k = 1, 3, 5, 10, 20, 50 up to `ranked`:
//   HR@k    1 if one of the first k completions is the item to find, else 0; mean of the groups
//   NDCG@k  1 / log2(place + 2) of that completion, whose place counts from 0, else 0; likewise
std::map<std::string, double> item_metrics(const std::vector<ScoredCompletion>& completions,
                                           const std::vector<Prompt>& prompts, std::int64_t group,
                                           std::int64_t ranked);

}  // namespace mgpu::rl
