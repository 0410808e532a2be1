#pragma once

#include <cstdint>
#include <set>
#include <span>

#include "runtime/grpo/generation_plan.hpp"
#include "runtime/grpo/group_assignment.hpp"

namespace mgpu::grpo {

// Whether prompts are computed once for all of their completions in a micro-batch: where that saves
// more than a few of all tokens, because of the second attention.
bool pays_to_share(std::int64_t saved, std::int64_t all);

// Completions of one prompt, in sums.
struct GroupTokens {
  std::uint32_t prompt = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t completions = 0;
  std::int64_t tokens = 0;  // of all completions
  std::int64_t inputs = 0;  // of them, those from which another token is predicted

  void add(const CompletionCost& completion);
};

// The tokens that the completions of a micro-batch are computed from. Completions of one prompt are
// neighbours, and share its tokens but the last where that is worth a second attention. The last
// token of a completion is no input.
class LaidOutTokens {
 public:
  void add(const GroupTokens& group);
  void add(const CompletionCost& completion);

  // Whether each prompt is computed once. Prompts of one token have nothing to share.
  bool shares_prompts() const { return sums_.shares(); }
  std::int64_t count() const { return sums_.count(); }
  std::int64_t count_with(const GroupTokens& group) const { return sums_with(group).count(); }
  std::int64_t count_with(const CompletionCost& completion) const;

 private:
  struct Sums {
    std::int64_t all = 0, inputs = 0, saved = 0;
    bool may_share = true;

    bool shares() const;
    std::int64_t count() const { return inputs - (shares() ? saved : 0); }
  };

  Sums sums_with(const GroupTokens& group) const;

  std::set<std::uint32_t> prompts_;
  Sums sums_;
};

// As assign_groups_to_ranks, but a micro-batch has at most `most_tokens` tokens as they are laid
// out, instead of a number of completions. A completion that has more is alone. The longest
// completions are dealt first, so that the ranks get about equal numbers of tokens, and so do the
// micro-batches of a rank.
Assignments assign_tokens_to_ranks(std::span<const CompletionCost> completions, int world,
                                   std::int64_t most_tokens);

}  // namespace mgpu::grpo
