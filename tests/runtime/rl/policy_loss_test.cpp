#include "runtime/rl/policy_loss.hpp"

#include "runtime/grpo/token_budget.hpp"
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

TEST_CASE("the tokens of a micro-batch are counted as they are laid out", "[policy loss]") {
  std::vector<Prompt> prompts(3);
  const auto longest = GENERATE(std::size_t{1}, std::size_t{3}, std::size_t{40});
  for (std::size_t i = 0; i < prompts.size(); ++i) prompts[i].tokens.assign(longest + i, 1);
  std::vector<ScoredCompletion> completions;
  for (std::size_t i = 0; i < 12; ++i)
    completions.push_back(
        completion_of(static_cast<std::uint32_t>(i / 4), Numbers(i * i * 37 % 23, 7)));
  std::vector<BatchEntry> entries;
  grpo::LaidOutTokens tokens;
  for (const auto& completion : completions) {
    entries.push_back({&completion});
    const grpo::CompletionCost cost{
        .prompt = completion.prompt,
        .prompt_tokens = static_cast<std::int64_t>(prompts[completion.prompt].tokens.size()),
        .tokens = static_cast<std::int64_t>(completion.tokens.size())};
    const auto with = tokens.count_with(cost);
    tokens.add(cost);
    const auto batch = batch_of(entries, prompts);
    CHECK(tokens.count() == static_cast<std::int64_t>(batch.tokens.size()));
    CHECK(tokens.count() == with);
    CHECK(tokens.shares_prompts() == !batch.branches.empty());
  }
}

TEST_CASE("neighbouring completions of a prompt share its tokens but the last", "[policy loss]") {
  std::vector<Prompt> prompts(2);
  prompts[0].tokens = {1, 2, 3};
  prompts[1].tokens = {4, 5};
  const auto a = completion_of(0, {7, 8}), b = completion_of(0, {}), c = completion_of(1, {6});
  const auto none = data::kNoTarget;
  const std::vector<BatchEntry> entries{{&a}, {&b}, {&c, false}};
  const auto batch = batch_of(entries, prompts);
  CHECK(batch.tokens == Numbers{1, 2, 4, 3, 7, 3, 5});
  CHECK(batch.positions == Numbers{0, 1, 0, 2, 3, 2, 1});
  CHECK(batch.targets == Numbers{none, none, none, 7, 8, none, 6});
  CHECK(batch.starts == Numbers{0, 2, 3, 5, 6, 7});
  CHECK(batch.branches == Numbers{2, 4, 5});

  SECTION("but not if they are no neighbours") {
    const std::vector<BatchEntry> apart{{&a}, {&c}, {&b}};
    CHECK(batch_of(apart, prompts).branches.empty());
    CHECK(batch_of(apart, prompts).starts == Numbers{0, 4, 6, 9});
  }
  SECTION("nor in a micro-batch with a prompt of one token, of which nothing would be left") {
    prompts[1].tokens = {4};
    CHECK(batch_of(entries, prompts).branches.empty());
  }
  SECTION("nor if it saves too few tokens to pay for itself") {
    const auto d = completion_of(0, Numbers(26, 9)), e = completion_of(0, {9});
    const std::vector<BatchEntry> few{{&d}, {&e}};  // 2 of 33 tokens
    CHECK(batch_of(few, prompts).branches.empty());
    const auto f = completion_of(0, Numbers(25, 9));
    const std::vector<BatchEntry> enough{{&f}, {&e}};  // 2 of 32
    CHECK(batch_of(enough, prompts).branches == Numbers{1, 3});
  }
}
