#include "launcher/hang_evidence/line_table.hpp"

#include <cstddef>

namespace mgpu::launcher {
namespace {

// An entry begins with a byte whose highest bit is set: 4 bits for its kind, 3 for the number of
// its code units minus 1. The bytes after it have that bit clear.
constexpr unsigned kEntry = 0x80;
enum EntryKind { kFirstOneLine = 10, kLastOneLine = 12, kNoColumns = 13, kLong = 14, kNone = 15 };

// A number with its sign in the lowest bit, six bits in a byte, the lowest first; bit 6 is set in
// all bytes but the last.
int signed_number(std::string_view bytes) {
  unsigned value = 0;
  unsigned shift = 0;
  for (const char byte : bytes) {
    const auto bits = static_cast<unsigned char>(byte);
    if (shift < 30) value |= (bits & 63u) << shift;
    shift += 6;
    if (!(bits & 64u)) break;
  }
  const int size = static_cast<int>(value >> 1);
  return value & 1u ? -size : size;
}

int line_change(int kind, std::string_view rest) {
  if (kind == kLong || kind == kNoColumns) return signed_number(rest);
  return kind >= kFirstOneLine && kind <= kLastOneLine ? kind - kFirstOneLine : 0;
}

}  // namespace

std::optional<int> line_of_instruction(std::string_view table, int first_line,
                                       std::int64_t instruction) {
  std::int64_t line = first_line;
  std::int64_t begin = 0;
  for (std::size_t at = 0; at < table.size();) {
    const auto head = static_cast<unsigned char>(table[at]);
    std::size_t end = at + 1;
    while (end < table.size() && !(static_cast<unsigned char>(table[end]) & kEntry)) ++end;
    const int kind = (head >> 3) & 15;
    line += line_change(kind, table.substr(at + 1, end - at - 1));
    begin += (head & 7) + 1;
    if (instruction < begin)
      return kind == kNone || line < 0 || line > INT32_MAX ? std::nullopt
                                                           : std::optional(static_cast<int>(line));
    at = end;
  }
  return std::nullopt;
}

}  // namespace mgpu::launcher
