#include "rendezvous/base/printable.hpp"

#include <cstddef>
#include <cstdint>

namespace mgpu::rendezvous {
namespace {

// The length of the UTF-8 character at the beginning of the text; 0: the first byte begins none.
std::size_t character_length(std::string_view text, std::uint32_t& code) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const std::size_t length = first < 0x80                     ? 1
                             : first >= 0xC2 && first <= 0xDF ? 2
                             : first >= 0xE0 && first <= 0xEF ? 3
                             : first >= 0xF0 && first <= 0xF4 ? 4
                                                              : 0;
  if (length == 0 || length > text.size()) return 0;
  code = length == 1 ? first : first & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3FU);
  }
  const bool too_long = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return too_long || surrogate || code > 0x10FFFF ? 0 : length;
}

bool controls_terminal(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) ||        // C0, DEL, C1
         code == 0x061C || code == 0x200E || code == 0x200F ||  // marks of direction
         (code >= 0x2028 && code <= 0x202E) ||                  // separators, embeddings, overrides
         (code >= 0x2066 && code <= 0x2069);                    // isolates
}

// The length of a control sequence, ESC [ ... letter, at the beginning of the text; 0: none.
std::size_t sequence_length(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  for (std::size_t i = 2; i < text.size(); ++i) {
    if (text[i] >= 0x40 && text[i] <= 0x7E) return i + 1;
    if (text[i] < 0x20 || text[i] > 0x3F) return 0;
  }
  return 0;
}

std::string converted(std::string_view text, bool output) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    if (const std::size_t sequence = output ? sequence_length(text) : 0; sequence != 0) {
      text.remove_prefix(sequence);
      continue;
    }
    std::uint32_t code = 0;
    const std::size_t length = character_length(text, code);
    if (output && text.front() == '\t')
      out += ' ';
    else if (length != 0 && (!controls_terminal(code) || (output && code == '\n')))
      out += text.substr(0, length);
    else
      out += '?';
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) {
  return converted(text, false);
}

std::string printable_output(std::string_view text) {
  return converted(text, true);
}

}  // namespace mgpu::rendezvous
