#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/data/mixture.hpp"
#include "runtime/data/order.hpp"
#include "runtime/rl/prompts.hpp"
#include "runtime/train/model_source.hpp"

namespace mgpu::rl {

// The prompts of a run: those to train on and those to evaluate.
class RunPrompts {
 public:
  // Reads the files of dataset_name and eval_dataset. Throws train::RecipeError if a completion
  // leaves no space for a prompt, and as read_prompts() does.
  // `items`: see PromptOptions.
  RunPrompts(const train::TrainConfig& config, const train::ModelSource& source,
             const rewards::ItemList* items);

  const std::vector<Prompt>& training() const { return training_.all; }
  const std::vector<Prompt>& evaluation() const;  // those that evaluated() selects from
  const std::vector<std::uint32_t>& evaluated() const { return evaluated_; }  // empty: none
  const std::vector<Prompt>& eval_dataset() const { return eval_dataset_.all; }

  std::int64_t longest() const;           // tokens of the longest prompt
  std::int64_t longest_training() const;  // of the longest one in dataset_name
  std::vector<std::string> notes() const;
  // The digests of the files of dataset_name, and of the tokenizer with its chat template.
  const std::vector<std::string>& file_digests() const { return training_.digests; }
  const std::string& encoder_digest() const { return encoder_digest_; }

  // Chooses the prompts to evaluate, those of eval_dataset or else val_set_size of dataset_name.
  // Returns those to train on. Call it once.
  std::vector<data::Selection> split(double val_set_size, std::uint64_t seed);

 private:
  PromptSet training_, eval_dataset_;
  std::string encoder_digest_;
  double left_out_ = 0;
  data::Mixture mixture_;
  std::vector<std::size_t> mixed_datasets_;  // of each file
  std::vector<std::uint32_t> evaluated_;
};

}  // namespace mgpu::rl
