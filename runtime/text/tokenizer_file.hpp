#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/text/added_tokens.hpp"
#include "runtime/text/bpe.hpp"
#include "runtime/text/vocabulary.hpp"

namespace mgpu::text {

// tokenizer.json, read but not yet understood: its two long parts apart from the rest.
class TokenizerFile {
 public:
  // Throws for what is not JSON or has a vocabulary or merges of another shape.
  explicit TokenizerFile(std::string_view json);

  const nlohmann::json& rest() const { return rest_; }  // without model.vocab and model.merges
  Vocabulary take_vocabulary() { return std::move(vocabulary_); }
  std::vector<Bpe::Merge> merges() const;  // views into this

 private:
  friend class TokenizerFileReader;
  struct MergeText {
    std::size_t begin, middle, end;  // the right half begins at the middle
  };

  nlohmann::json rest_;
  Vocabulary vocabulary_;
  std::string merge_text_;
  std::vector<MergeText> merges_;
};

// The options of the model; refuses what is no BPE or needs what we do not have, by name.
BpeOptions read_bpe_options(const nlohmann::json& model);

// The tokens of "added_tokens", in order.
std::vector<AddedToken> read_added_tokens(const nlohmann::json& list);

}  // namespace mgpu::text
