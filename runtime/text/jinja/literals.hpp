#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/text/jinja/lexer.hpp"

namespace mgpu::text::jinja {

// The kind and length of the number that begins at a byte of the source, which must be a digit.
std::pair<TokenKind, std::size_t> scan_number(std::string_view source, std::size_t at);
// The length of the string literal that begins at a byte of the source, including both quotes.
std::size_t scan_string(std::string_view source, std::size_t at, int line);
// The value of a string literal without its quotes.
std::string unescape(std::string_view literal, int line);

}  // namespace mgpu::text::jinja
