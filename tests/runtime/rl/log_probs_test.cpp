#include "runtime/rl/log_probs.hpp"

#include <ATen/ops/full.h>

#include "tests/support/catch.hpp"

using namespace mgpu;
using namespace mgpu::rl;

TEST_CASE("every token gets its log-prob from the forward pass of its completion", "[log probs]") {
  std::vector<Prompt> prompts(1);
  prompts[0].tokens = {1, 2};
  std::vector<ScoredCompletion> completions(3);
  completions[0].tokens = {4, 5, 6};
  completions[2].tokens = {7};  // completion 1 is empty
  std::vector<std::int64_t> sizes;
  set_log_probs(completions, prompts,
                {.list = &ScoredCompletion::old_log_probs,
                 .at_once = 2,
                 .device = at::kCPU,
                 .score = [&](const model::DeviceBatch& batch) {
                   sizes.push_back(batch.target_rows.numel());
                   return at::full({sizes.back()}, -static_cast<double>(sizes.size()), at::kFloat);
                 }});
  CHECK(sizes == std::vector<std::int64_t>{3, 1});
  CHECK(completions[0].old_log_probs == std::vector<float>{-1, -1, -1});
  CHECK(completions[1].old_log_probs.empty());
  CHECK(completions[2].old_log_probs == std::vector<float>{-2});
  CHECK(completions[0].ref_log_probs.empty());
}
