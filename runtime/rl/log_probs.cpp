#include "runtime/rl/log_probs.hpp"

#include <algorithm>
#include <span>

#include "runtime/rl/policy_loss.hpp"
#include "runtime/train/to_device.hpp"

namespace mgpu::rl {

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
    const auto* value = host.const_data_ptr<float>();
    for (auto& completion : some) {
      (completion.*request.list).assign(value, value + completion.tokens.size());
      value += completion.tokens.size();
    }
  }
}

}  // namespace mgpu::rl
