#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/rl/generation.hpp"
#include "runtime/rl/item_tokens.hpp"
#include "runtime/rl/prompts.hpp"
#include "runtime/rollout/allowed_sequences.hpp"
#include "runtime/train/model_source.hpp"

namespace mgpu::rl {

// What the keys of a recommender (MiniOneRec's) change about completions: which ones are allowed,
// how they are found, and which of them form a group.
class Recommendation {
 public:
  // Reads the items, if the recipe names a file of them. Throws train::RecipeError.
  Recommendation(const train::TrainConfig& config, const train::ModelSource& source);

  const rewards::ItemList* items() const { return tokens_ ? &tokens_->items() : nullptr; }
  // Of the items' names and ids in their order, wherever their file is; empty: there is none.
  std::string digest() const;
  // The only completions that are generated; null: there is no restriction.
  const rollout::AllowedSequences* allowed() const { return allowed_ ? &*allowed_ : nullptr; }

  bool trains_on_beams() const { return trains_on_beams_; }
  std::int64_t test_beams() const { return test_beams_; }  // 0: evaluations generate as training
  // Whether groups are measured: hits at their places, and diversity.
  bool measures() const { return measures_; }

  // How many completions are generated for a group to train on.
  std::int64_t generated(std::int64_t group) const;
  // How many completions of such a group the model found: the first ones; form_group adds the rest.
  std::int64_t found(std::int64_t group) const { return adds_target_ ? group - 1 : group; }
  // Makes a group of generated completions of a prompt, which training uses.
  void form_group(std::vector<ScoredCompletion>& completions, const Prompt& prompt,
                  std::int64_t group) const;

  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void read_items(const std::string& path, std::int64_t most_tokens);
  void check_beams(std::int64_t beams, const char* key) const;

  const train::ModelSource& source_;
  std::optional<ItemTokens> tokens_;
  std::optional<rollout::AllowedSequences> allowed_;
  bool trains_on_beams_ = false, adds_target_ = false, samples_more_ = false, measures_ = false;
  std::int64_t test_beams_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace mgpu::rl
