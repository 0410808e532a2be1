#include "runtime/text/precompiled_map.hpp"

#include <stdexcept>

#include "rendezvous/base/base64.hpp"
#include "rendezvous/base/input_error.hpp"
#include "runtime/text/graphemes.hpp"
#include "runtime/text/json_fields.hpp"
#include "runtime/text/unicode.hpp"

namespace mgpu::text {
namespace {

// Clusters of this many bytes or more are replaced character by character.
constexpr std::size_t kLongCluster = 6;

[[noreturn]] void refuse_map(const char* why) {
  throw rendezvous::InputError(std::string("precompiled_charsmap ") + why);
}

std::uint32_t little_endian(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

// The fields of a unit of the trie.
std::size_t offset_of(std::uint32_t unit) {
  return static_cast<std::size_t>(unit >> 10) << ((unit & 1u << 9) >> 6);
}
bool has_leaf(std::uint32_t unit) {
  return unit >> 8 & 1;
}
std::uint32_t label_of(std::uint32_t unit) {
  return unit & (1u << 31 | 0xFF);
}
std::size_t index_of(std::uint32_t unit) {
  return unit & ~(1u << 31);
}

}  // namespace

PrecompiledMap::PrecompiledMap(std::string_view base64) {
  const auto decoded = rendezvous::from_base64(base64);
  if (!decoded) refuse_map("is not base64");
  const std::string& bytes = *decoded;
  if (bytes.size() < 4) refuse_map("is too short");
  const std::size_t trie_bytes = little_endian(bytes, 0);
  if (trie_bytes < 4 || trie_bytes % 4 != 0 || trie_bytes > bytes.size() - 4)
    refuse_map("has a trie of a wrong size");
  for (std::size_t at = 4; at < 4 + trie_bytes; at += 4) units_.push_back(little_endian(bytes, at));
  replacements_ = bytes.substr(4 + trie_bytes);
  if (first_invalid_utf8(replacements_)) refuse_map("has replacements that are not UTF-8");
}

// The replacement for the shortest beginning of the part that has one: it replaces the whole part.
std::optional<std::string_view> PrecompiledMap::replacement_of(std::string_view part) const {
  const auto unit_at = [this](std::size_t at) {
    if (at >= units_.size()) refuse_map("has a trie that leads out of itself");
    return units_[at];
  };
  std::size_t at = offset_of(units_[0]);
  for (const char c : part) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0) break;
    at ^= byte;
    const std::uint32_t unit = unit_at(at);
    if (label_of(unit) != byte) break;
    at ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    const std::size_t begin = index_of(unit_at(at));
    if (begin > replacements_.size()) refuse_map("has a replacement outside of its text");
    const std::string_view found = std::string_view(replacements_).substr(begin);
    if (!found.empty() && (static_cast<unsigned char>(found[0]) & 0xC0) == 0x80)
      refuse_map("has a replacement that begins inside of a character");
    return found.substr(0, found.find('\0'));
  }
  return std::nullopt;
}

std::string PrecompiledMap::apply(std::string_view text, std::size_t longest) const {
  std::string result;
  result.reserve(text.size() + text.size() / 8);
  const auto append = [&](std::string_view part) {
    result += part;
    if (result.size() > longest) refuse_growth();
  };
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = grapheme_end(text, begin);
    const std::string_view cluster = text.substr(begin, end - begin);
    begin = end;
    if (cluster.size() < kLongCluster) {
      if (const auto whole = replacement_of(cluster)) {
        append(*whole);
        continue;
      }
    }
    for (std::size_t at = 0; at < cluster.size();) {
      const std::string_view character = cluster.substr(at, code_point_at(cluster, at).size);
      append(replacement_of(character).value_or(character));
      at += character.size();
    }
  }
  return result;
}

}  // namespace mgpu::text
