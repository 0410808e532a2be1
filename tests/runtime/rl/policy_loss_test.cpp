#include "runtime/rl/policy_loss.hpp"

#include "tests/support/catch.hpp"

using namespace mgpu;
using namespace mgpu::rl;

namespace {

using Numbers = std::vector<std::int32_t>;

ScoredCompletion completion_of(std::uint32_t prompt, Numbers tokens) {
  ScoredCompletion completion;
  completion.prompt = prompt;
  completion.tokens = std::move(tokens);
  return completion;
}

}  // namespace

TEST_CASE("a completion's tokens are the targets, and its last token is not an input",
          "[policy loss]") {
  std::vector<Prompt> prompts(2);
  prompts[0].tokens = {1, 2};
  prompts[1].tokens = {3};
  const auto first = completion_of(1, {7, 8, 9}), empty = completion_of(0, {}),
             one = completion_of(0, {6});
  const std::vector<BatchEntry> entries{{&first}, {&empty}, {&one, false}};
  const auto batch = batch_of(entries, prompts);
  CHECK(batch.tokens == Numbers{3, 7, 8, 1, 2, 1, 2});
  CHECK(batch.positions == Numbers{0, 1, 2, 0, 1, 0, 1});
  const auto none = data::kNoTarget;
  CHECK(batch.targets == Numbers{7, 8, 9, none, none, none, 6});
  CHECK(batch.starts == Numbers{0, 3, 5, 7});
  CHECK(batch.longest == 3);
  CHECK(batch.target_tokens == 4);
}
