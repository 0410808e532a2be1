#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/hash.hpp"
#include "runtime/text/vocabulary.hpp"
#include "runtime/text/word_cache.hpp"

namespace mgpu::text {

struct BpeOptions {
  std::optional<std::string> unk_token;
  bool fuse_unk = false;       // consecutive unknown characters become one token
  bool byte_fallback = false;  // an unknown character becomes its bytes: <0x0A>
  bool ignore_merges = false;  // a word in the vocabulary is one token, unmerged
  bool byte_level = false;     // words are bytes; tokens use the letters of byte_alphabet.hpp
};

// Byte pair encoding of words.
class Bpe {
 public:
  using Merge = std::pair<std::string_view, std::string_view>;  // highest priority first

  // Scratch memory for encoding. Each thread that encodes needs its own.
  class Workspace {
   private:
    friend class Bpe;
    struct Symbol {
      std::int32_t id, previous, next;  // id -1: merged into the previous symbol
    };
    struct Candidate {
      std::uint32_t rank;
      std::int32_t at, left, right, merged;
    };
    WordCache cache_;
    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
  };

  // Throws if a merge uses or makes a token that is not in the vocabulary.
  Bpe(Vocabulary vocabulary, std::span<const Merge> merges, BpeOptions options);

  // Appends the ids of a word. Throws if it needs an unk_token that is not in the vocabulary.
  void encode(std::string_view word, Workspace& workspace, std::vector<std::int32_t>& ids) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  struct Merged {
    std::uint32_t rank = 0;
    std::int32_t id = 0;
  };
  // Whether a run of unknown characters has not ended yet.
  struct Unknown {
    bool pending = false;
  };

  void add_merge(const Merge& merge, std::uint32_t rank);
  void find_first_ids();
  void encode_part(std::string_view word, Workspace& workspace,
                   std::vector<std::int32_t>& ids) const;
  void encode_new(std::string_view word, Workspace& workspace,
                  std::vector<std::int32_t>& ids) const;
  void symbols_of(std::string_view word, Workspace& workspace) const;
  void add_letter(std::string_view letter, Workspace& workspace, Unknown& unknown) const;
  bool add_fallback(std::string_view letter, Workspace& workspace) const;
  std::int32_t unk_id() const;
  void merge(Workspace& workspace) const;
  void push_candidate(std::int32_t at, Workspace& workspace) const;

  Vocabulary vocabulary_;
  BpeOptions options_;
  IntMap<Merged> merges_;
  std::array<std::int32_t, 256> byte_ids_;      // of the byte's letter, or of the ASCII character
  std::array<std::int32_t, 256> fallback_ids_;  // of <0x00> to <0xFF>
  bool splits_at_marks_ = false;                // no token has a U+2581 after another character
};

}  // namespace mgpu::text
