#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace mgpu::text {

// What a code point means for the boundaries of grapheme clusters (Unicode's annex 29). A linker is
// also an extender; conjunct consonants, which linkers join, have a class of their own.
enum class GraphemeClass : std::uint8_t {
  other,
  control,
  extend,
  linker,
  spacing,
  prepend,
  consonant,
  pictograph,
  regional,
  leading,  // of Hangul syllables, as are the next three
  vowel,
  trailing,
  syllable,
};

struct GraphemeRange {
  char32_t first, last;
  GraphemeClass kind;
};

// The code points that are not `other`, by Unicode 17 as in Hugging Face's tokenizers.
std::span<const GraphemeRange> grapheme_ranges();

// The end of the extended grapheme cluster that begins at `begin` in well-formed UTF-8. There must
// be one.
std::size_t grapheme_end(std::string_view text, std::size_t begin);

}  // namespace mgpu::text
