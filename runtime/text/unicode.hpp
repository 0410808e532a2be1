#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace mgpu::text {

// The position of the first byte that is not part of well-formed UTF-8 (surrogates and overlong
// forms are invalid), or nothing.
std::optional<std::size_t> first_invalid_utf8(std::string_view bytes);

struct CodePoint {
  char32_t value = 0;
  std::size_t size = 0;  // in bytes
};

// The code point at, or before, a position in well-formed UTF-8. There must be one.
CodePoint code_point_at(std::string_view text, std::size_t at);
CodePoint code_point_before(std::string_view text, std::size_t end);

void append_utf8(char32_t value, std::string& to);

// Converts bytes to valid UTF-8: every maximal ill-formed part becomes U+FFFD.
std::string to_valid_utf8(std::string_view bytes);

// Unicode's White_Space.
bool is_white_space(char32_t c);

// Unicode's normalization forms: D decomposes, C composes again; those with K also replace
// characters by compatible ones, such as U+FB01 by "fi".
enum class Form { nfc, nfd, nfkc, nfkd };

// True if a quick check shows that the text is in the form.
bool passes_quick_check(std::string_view text, Form form);

// The text in a normalization form as Hugging Face's tokenizers compute it, independent of the
// Unicode version of our library: code points that are newer than their tables stay unchanged and
// in place.
std::string normalized(std::string_view text, Form form);

}  // namespace mgpu::text
