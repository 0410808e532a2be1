#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/text/jinja/lexer.hpp"

namespace mgpu::text::jinja {

// The kind and length of the number that begins with a digit at a byte of the source.
std::pair<TokenKind, std::size_t> scan_number(std::string_view source, std::size_t at);
// The length of the string that begins with a quote there, with both quotes.
std::size_t scan_string(std::string_view source, std::size_t at, int line);
// What the inside of a string literal means.
std::string unescape(std::string_view literal, int line);

}  // namespace mgpu::text::jinja
