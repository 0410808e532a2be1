#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace mgpu::text {

// Where the first byte stands that is no part of well-formed UTF-8 (surrogates and overlong forms
// are not), or nothing.
std::optional<std::size_t> first_invalid_utf8(std::string_view bytes);

struct CodePoint {
  char32_t value = 0;
  std::size_t size = 0;  // in bytes
};

// The code point at, or before, a place in well-formed UTF-8; the place must leave one to read.
CodePoint code_point_at(std::string_view text, std::size_t at);
CodePoint code_point_before(std::string_view text, std::size_t end);

void append_utf8(char32_t value, std::string& to);

// Bytes as text: every maximal part that is not well-formed becomes U+FFFD.
std::string to_valid_utf8(std::string_view bytes);

// Unicode's White_Space.
bool is_white_space(char32_t c);

// Whether the text needs no look at all to be known as NFC.
bool surely_nfc(std::string_view text);

// The normalisation form C as Hugging Face's tokenizers compute it, whatever Unicode version our
// own tables have: code points newer than theirs stay as and where they are.
std::string nfc(std::string_view text);

}  // namespace mgpu::text
