#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/text/byte_trie.hpp"
#include "runtime/text/vocabulary.hpp"
#include "runtime/text/word_cache.hpp"

namespace mgpu::text {

struct UnigramOptions {
  std::optional<std::int32_t> unk_id;
  bool byte_fallback = false;  // an unknown run of characters becomes its bytes: <0x0A>
};

// SentencePiece's Unigram model: divides a word into the pieces with the highest sum of scores.
class Unigram {
 public:
  // Scratch memory for encoding. Each thread that encodes needs its own.
  class Workspace {
   private:
    friend class Unigram;
    // The best division of the text before a position.
    struct Best {
      double score = 0;
      std::int32_t begin = -1;  // of its last piece; -1: no division yet
      std::int32_t id = -1;     // of its last piece
    };
    struct Part {
      std::size_t begin, end;
      std::int32_t id;  // -1: unknown characters
    };
    WordCache cache_;
    std::vector<Best> best_;
    std::vector<Part> parts_;
  };

  // `scores`: one per id of the vocabulary, which has no gaps. Throws if unk_id is not in the
  // vocabulary, or if a piece is too long.
  Unigram(Vocabulary vocabulary, std::vector<double> scores, UnigramOptions options);

  // Appends the ids of a word. Throws if it has a character that is not in the vocabulary and there
  // is no unk_id.
  void encode(std::string_view word, Workspace& workspace, std::vector<std::int32_t>& ids) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  void encode_new(std::string_view word, Workspace& workspace,
                  std::vector<std::int32_t>& ids) const;
  void find_best(std::string_view word, std::vector<Workspace::Best>& best) const;
  void collect_parts(std::size_t size, Workspace& workspace) const;
  void append_unknown(std::string_view run, std::vector<std::int32_t>& ids) const;
  std::int32_t unk_id() const;

  Vocabulary vocabulary_;
  std::vector<double> scores_;
  UnigramOptions options_;
  ByteTrie pieces_;
  double unknown_score_ = 0;
};

}  // namespace mgpu::text
