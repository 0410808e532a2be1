#include "runtime/rl/log_probs.hpp"

#include <algorithm>

#include "runtime/rl/policy_loss.hpp"
#include "runtime/train/to_device.hpp"

namespace mgpu::rl {

void divide_log_probs(std::span<const float> values, std::span<ScoredCompletion> completions,
                      LogProbsList list) {
  for (auto& completion : completions) {
    const auto own = values.first(completion.tokens.size());
    (completion.*list).assign(own.begin(), own.end());
    values = values.subspan(own.size());
  }
}

void set_log_probs(std::vector<ScoredCompletion>& completions, const std::vector<Prompt>& prompts,
                   const LogProbsRequest& request) {
  const auto at_once = static_cast<std::size_t>(request.at_once);
  for (std::size_t begin = 0; begin < completions.size(); begin += at_once) {
    const auto some =
        std::span(completions).subspan(begin, std::min(at_once, completions.size() - begin));
    std::vector<BatchEntry> entries;
    for (const auto& completion : some) entries.push_back({&completion, true});
    const auto batch = train::to_device(batch_of(entries, prompts), request.device);
    const auto host = request.score(batch).cpu();
    divide_log_probs({host.const_data_ptr<float>(), static_cast<std::size_t>(host.numel())}, some,
                     request.list);
  }
}

}  // namespace mgpu::rl
