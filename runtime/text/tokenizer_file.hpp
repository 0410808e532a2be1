#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/text/added_tokens.hpp"
#include "runtime/text/bpe.hpp"
#include "runtime/text/unigram.hpp"
#include "runtime/text/vocabulary.hpp"

namespace mgpu::text {

// tokenizer.json, parsed but not yet interpreted. Its two large parts, vocabulary and merges, are
// separate from the rest.
class TokenizerFile {
 public:
  // Throws if it is not JSON, or if the vocabulary or the merges have another structure.
  explicit TokenizerFile(std::string_view json);

  // Without model.merges and model.vocab; if that is a list of pieces, with an empty list.
  const nlohmann::json& rest() const { return rest_; }
  bool has_no_tokens() const;  // although it has a model
  Vocabulary take_vocabulary() { return std::move(vocabulary_); }
  std::vector<double> take_scores() { return std::move(scores_); }  // of the pieces, by id
  std::vector<Bpe::Merge> merges() const;                           // views into this object

 private:
  friend class TokenizerFileReader;
  struct MergeText {
    std::size_t begin, middle, end;  // the right token begins at `middle`
  };

  nlohmann::json rest_;
  Vocabulary vocabulary_;
  std::vector<double> scores_;
  std::string merge_text_;
  std::vector<MergeText> merges_;
};

// The options of the model. Throws an error that names the feature if the model is not BPE or is
// not supported.
BpeOptions read_bpe_options(const nlohmann::json& model);

// Whether the model is Unigram; older files do not state the type of the model.
bool is_unigram(const nlohmann::json& model);
// The options of a Unigram model. Throws if they are not valid.
UnigramOptions read_unigram_options(const nlohmann::json& model);

// The tokens of "added_tokens", in order.
std::vector<AddedToken> read_added_tokens(const nlohmann::json& list);

}  // namespace mgpu::text
