#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/text/hash.hpp"
#include "runtime/text/normalizer.hpp"
#include "runtime/text/regex.hpp"

namespace mgpu::text {

struct AddedToken {
  std::string content;
  std::int32_t id = -1;
  bool single_word = false;  // not within a word
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space after it
  bool normalized = false;   // looked for after normalisation, not before
  bool special = false;
  std::string decoded;  // what decoding begins with: normalised, if it is; set by AddedTokens
};

// A stretch of text, or an added token that stood there.
struct Piece {
  std::string_view text;
  std::int32_t id = -1;
  bool at_start = false;  // of the whole text
};

// Finds many words at once: at the leftmost place, the longest.
class Finder {
 public:
  void add(std::string_view word, std::int32_t id);  // one added before gives way
  struct Found {
    std::size_t begin = 0, end = 0;
    std::int32_t id = -1;
  };
  // The next one at or after `from`; of id -1 if there is none.
  Found find(std::string_view text, std::size_t from) const;

 private:
  IntMap<std::int32_t> steps_;            // (node, byte) -> node
  std::vector<std::int32_t> ids_ = {-1};  // of nodes at which a word ends
  std::array<bool, 256> begins_{};
};

// The tokens that are cut out of text before the model sees it.
class AddedTokens {
 public:
  // A token with the same content or id gives way.
  void add(AddedToken token);
  // To be called after the last add: prepares split().
  void prepare(const Normalizer& normalizer);

  const AddedToken* find(std::string_view content) const;
  const AddedToken* find(std::int32_t id) const;
  std::int32_t end() const;  // highest id + 1

  // Appends the pieces of text: for `normalized` text by the tokens that are looked for there.
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
