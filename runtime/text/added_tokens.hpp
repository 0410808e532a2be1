#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/text/byte_trie.hpp"
#include "runtime/text/normalizer.hpp"
#include "runtime/text/regex.hpp"

namespace mgpu::text {

struct AddedToken {
  std::string content;
  std::int32_t id = -1;
  bool single_word = false;  // matches only where it is not part of a word
  bool lstrip = false;       // also matches the white space before it
  bool rstrip = false;       // also matches the white space after it
  bool normalized = false;   // searched in the normalized text, not in the original
  bool special = false;
  std::string decoded;  // its text for decoding; AddedTokens sets and normalizes it
};

// A part of the text, or an added token found in it.
struct Piece {
  std::string_view text;
  std::int32_t id = -1;
  bool at_start = false;  // at the start of the whole text
};

// Searches for many words at once: finds the leftmost match, and of several there the longest.
class Finder {
 public:
  void add(std::string_view word,
           std::int32_t id);  // replaces the id of a word that was added before
  struct Found {
    std::size_t begin = 0, end = 0;
    std::int32_t id = -1;
  };
  // The next match at or after `from`; its id is -1 if there is none.
  Found find(std::string_view text, std::size_t from) const;

 private:
  ByteTrie words_;
  std::array<bool, 256> begins_{};
};

// The tokens that are extracted from the text before the model encodes the rest.
class AddedTokens {
 public:
  // Replaces a token with the same content or id.
  void add(AddedToken token);
  // Prepares split(). Must be called after the last add().
  void prepare(const Normalizer& normalizer);

  const AddedToken* find(std::string_view content) const;
  const AddedToken* find(std::int32_t id) const;
  std::int32_t end() const;  // highest id + 1

  // Splits the text at the added tokens that apply to it (`normalized` or original text) and
  // appends the pieces.
  void split(std::string_view text, bool normalized, bool at_start,
             std::vector<Piece>& pieces) const;

 private:
  bool within_word(std::string_view text, std::size_t begin, std::size_t end) const;

  std::map<std::int32_t, AddedToken> tokens_;
  std::unordered_map<std::string, std::int32_t> ids_;
  Finder plain_, normalized_;
  std::optional<Regex> word_;
};

}  // namespace mgpu::text
