#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mgpu::text {

// SentencePiece's table of replacements ("precompiled_charsmap"): a double-array trie over the
// bytes of the texts to replace, and their replacements. It is used exactly as Hugging Face's
// tokenizers use it.
class PrecompiledMap {
 public:
  // `base64`: the encoded table. Throws if it is not such a table.
  explicit PrecompiledMap(std::string_view base64);

  // Replaces whole grapheme clusters if they are short, and single characters otherwise. Throws if
  // the result has more than `longest` bytes.
  std::string apply(std::string_view text, std::size_t longest) const;

 private:
  std::optional<std::string_view> replacement_of(std::string_view part) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;  // each ends with a NUL byte
};

}  // namespace mgpu::text
