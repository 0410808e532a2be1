#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/normalizer.hpp"
#include "runtime/text/pre_tokenizer.hpp"
#include "runtime/text/word_counts.hpp"

namespace mgpu::text {

enum class TokenizerKind {
  bpe,         // byte-level BPE with the normalization and the words of Qwen2
  characters,  // each character is a token
};

struct TokenizerTraining {
  TokenizerKind kind = TokenizerKind::bpe;
  std::size_t vocab_size = 8192;   // at most, with the special tokens
  std::int64_t min_frequency = 2;  // bpe: a pair that is rarer is not merged
};

// The special tokens of every trained tokenizer: end of text, which is also the padding, and start
// and end of a chat message. `characters` also has one for characters that it does not know.
std::vector<std::string> special_tokens(TokenizerKind kind);

// The kind with this name, bpe or characters.
TokenizerKind tokenizer_kind(std::string_view name);

// The smallest vocabulary that a kind allows.
std::size_t least_vocabulary(TokenizerKind kind);

// Counts the words (for `characters`: the characters) of texts. Not thread-safe: each thread needs
// its own, and add() joins them.
class TokenizerText {
 public:
  explicit TokenizerText(TokenizerKind kind);

  // Throws for text that is not UTF-8; the message has the position of the byte.
  void read(std::string_view text);
  void add(const TokenizerText& other) { words_.add(other.words_); }
  const WordCounts& words() const { return words_; }

 private:
  TokenizerKind kind_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  std::string buffer_;
  WordCounts words_;
};

// The files tokenizer.json and tokenizer_config.json, and the size of the vocabulary.
struct NewTokenizer {
  std::map<std::string, std::string> files;
  std::size_t vocab_size = 0;  // less than requested if the text yields no more tokens
};
// Trains a tokenizer. The same counts give the same bytes.
NewTokenizer train_tokenizer(const TokenizerText& text, const TokenizerTraining& training);

}  // namespace mgpu::text
