#include "runtime/text/unicode.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>
#include <utf8proc.h>

#include "rendezvous/base/input_error.hpp"
#include "runtime/text/unicode_additions.hpp"

namespace mgpu::text {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

unsigned char byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

struct Sequence {
  std::size_t size = 1;  // bytes of the code point, or of the maximal ill-formed part
  bool valid = false;
};

// Table 3-7 of the Unicode standard: which second bytes may follow a first byte.
Sequence sequence_at(std::string_view text, std::size_t at) {
  const unsigned char lead = byte_at(text, at);
  if (lead < 0x80) return {1, true};
  if (lead < 0xC2 || lead > 0xF4) return {1, false};
  const std::size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < size; ++i) {
    if (at + i >= text.size()) return {i, false};
    const unsigned char next = byte_at(text, at + i);
    if (next < (i == 1 ? low : 0x80) || next > (i == 1 ? high : 0xBF)) return {i, false};
  }
  return {size, true};
}

std::size_t skip_ascii(std::string_view text, std::size_t at) {
  std::uint64_t eight;
  while (at + sizeof eight <= text.size()) {
    std::memcpy(&eight, text.data() + at, sizeof eight);
    if (eight & 0x8080808080808080u) break;
    at += sizeof eight;
  }
  while (at < text.size() && byte_at(text, at) < 0x80) ++at;
  return at;
}

// The role of a code point in normalization. An inert code point does not change, move or compose
// with earlier ones, so text can be normalized separately between inert code points.
enum class Role : std::uint8_t { inert, active, newcomer };

constexpr char32_t kRoles = 0x30000;  // above, every code point is inert
constexpr std::size_t kForms = 4;

utf8proc_option_t options_of(Form form) {
  const bool composes = form == Form::nfc || form == Form::nfkc;
  const bool compatible = form == Form::nfkc || form == Form::nfkd;
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE |
                                        (composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                        (compatible ? UTF8PROC_COMPAT : 0));
}

void append_normalized(std::string_view text, Form form, std::string& to) {
  utf8proc_uint8_t* result = nullptr;
  const auto size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &result, options_of(form));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
  if (size == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  if (size < 0) {
    throw rendezvous::InputError(
        fmt::format("cannot normalize {} bytes of text: {}", text.size(), utf8proc_errmsg(size)));
  }
  to.append(reinterpret_cast<const char*>(result), static_cast<std::size_t>(size));
}

// The decomposition of one code point, a compatible one if the option is set.
std::u32string decomposed(char32_t c, int option) {
  std::array<utf8proc_int32_t, 32> parts;
  int boundary = 0;
  const auto count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(c), parts.data(), parts.size(),
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | option), &boundary);
  if (count <= 0) return {c};
  return {parts.begin(), parts.begin() + count};
}

constexpr std::size_t kFewMarks = 32;

int combining_class(char32_t c) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

bool begins_with_mark(char32_t c) {
  // The only starters that decompose into marks.
  return combining_class(c) != 0 || c == 0x0F73 || c == 0x0F75 || c == 0x0F81;
}

bool has_many_marks(std::string_view text) {
  std::size_t marks = 0;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    marks = begins_with_mark(c.value) ? marks + 1 : 0;
    if (marks > kFewMarks) return true;
    at += c.size;
  }
  return false;
}

// The decomposition of the text in canonical order. utf8proc orders marks in quadratic time, and
// in linear time those that are ordered already.
std::string decomposed_in_order(std::string_view text, Form form) {
  const bool compatible = form == Form::nfkc || form == Form::nfkd;
  std::u32string all;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    all += decomposed(c.value, compatible ? UTF8PROC_COMPAT : 0);
    at += c.size;
  }
  const auto is_starter = [](char32_t c) { return combining_class(c) == 0; };
  for (auto begin = all.begin(); begin != all.end();) {
    const auto mark = std::find_if_not(begin, all.end(), is_starter);
    const auto end = std::find_if(mark, all.end(), is_starter);
    std::ranges::stable_sort(mark, end, {}, combining_class);
    begin = end;
  }
  std::string result;
  for (const char32_t c : all) append_utf8(c, result);
  return result;
}

void mark_decomposition(char32_t c, Form form, std::vector<Role>& roles) {
  // Later parts can compose with what is before them.
  const auto parts = decomposed(c, 0);
  for (const char32_t part : parts.substr(1)) {
    if (part < kRoles) roles[part] = Role::active;
  }
  if (parts == std::u32string{c} && decomposed(c, UTF8PROC_COMPAT) == parts) return;
  std::string own;
  std::string result;
  append_utf8(c, own);
  append_normalized(own, form, result);
  if (result != own) roles[c] = Role::active;
}

std::vector<Role> compute_roles(Form form) {
  std::vector<Role> roles(kRoles, Role::inert);
  for (char32_t c = 0x80; c < kRoles; ++c) {
    const auto* const property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
    if (property->category == UTF8PROC_CATEGORY_CN || property->category == UTF8PROC_CATEGORY_CS) {
      continue;
    }
    if (property->combining_class != 0) roles[c] = Role::active;
    mark_decomposition(c, form, roles);
  }
  for (const auto& range : unknown_to_normalizers()) {
    for (char32_t c = range.first; c <= range.last; ++c) roles[c] = Role::newcomer;
  }
  for (const auto& range : assigned_after_unicode_14()) {
    for (char32_t c = range.first; c <= range.last && c < kRoles; ++c) roles[c] = Role::newcomer;
  }
  return roles;
}

// Computed when a form is first used.
const std::vector<Role>& roles_of(Form form) {
  static std::array<std::once_flag, kForms> computed;
  static std::array<std::vector<Role>, kForms> roles;
  const auto index = static_cast<std::size_t>(form);
  std::call_once(computed[index], [&] { roles[index] = compute_roles(form); });
  return roles[index];
}

Role role_of(char32_t c, const std::vector<Role>& roles) {
  return c < kRoles ? roles[c] : Role::inert;
}

}  // namespace

std::optional<std::size_t> first_invalid_utf8(std::string_view bytes) {
  std::size_t at = 0;
  while ((at = skip_ascii(bytes, at)) < bytes.size()) {
    const Sequence sequence = sequence_at(bytes, at);
    if (!sequence.valid) return at;
    at += sequence.size;
  }
  return std::nullopt;
}

CodePoint code_point_at(std::string_view text, std::size_t at) {
  const unsigned char lead = byte_at(text, at);
  const auto low = [&](std::size_t i) -> char32_t { return byte_at(text, at + i) & 0x3Fu; };
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1Fu) << 6 | low(1), 2};
  if (lead < 0xF0) return {(lead & 0x0Fu) << 12 | low(1) << 6 | low(2), 3};
  return {(lead & 0x07u) << 18 | low(1) << 12 | low(2) << 6 | low(3), 4};
}

CodePoint code_point_before(std::string_view text, std::size_t end) {
  std::size_t at = end - 1;
  while (at > 0 && (byte_at(text, at) & 0xC0) == 0x80) --at;
  return code_point_at(text, at);
}

void append_utf8(char32_t value, std::string& to) {
  const auto put = [&](char32_t byte) { to.push_back(static_cast<char>(byte)); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xC0 | value >> 6);
    put(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    put(0xE0 | value >> 12);
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  } else {
    put(0xF0 | value >> 18);
    put(0x80 | (value >> 12 & 0x3F));
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  }
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (std::size_t at = 0; at < bytes.size();) {
    const Sequence sequence = sequence_at(bytes, at);
    if (sequence.valid) {
      text.append(bytes, at, sequence.size);
    } else {
      append_utf8(kReplacement, text);
    }
    at += sequence.size;
  }
  return text;
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool passes_quick_check(std::string_view text, Form form) {
  std::size_t at = skip_ascii(text, 0);
  if (at == text.size()) return true;
  const char32_t first = form == Form::nfc ? 0x300 : 0x80;  // that may change
  const auto& roles = roles_of(form);
  for (; at < text.size(); at = skip_ascii(text, at)) {
    const CodePoint c = code_point_at(text, at);
    if (c.value >= first && role_of(c.value, roles) == Role::active) return false;
    at += c.size;
  }
  return true;
}

std::string normalized(std::string_view text, Form form) {
  const auto& roles = roles_of(form);
  std::string result;
  result.reserve(text.size() + text.size() / 8);
  std::size_t copied = 0;  // everything before it is in `result`
  std::size_t base = 0;    // position of the starter that later code points may compose with
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    const Role role = role_of(c.value, roles);
    if (role != Role::active) {
      base = role == Role::inert ? at : at + c.size;
      at += c.size;
      continue;
    }
    result.append(text, copied, base - copied);
    std::size_t end = at;
    while (end < text.size()) {
      const CodePoint next = code_point_at(text, end);
      if (role_of(next.value, roles) != Role::active) break;
      end += next.size;
    }
    const auto part = text.substr(base, end - base);
    if (has_many_marks(part))
      append_normalized(decomposed_in_order(part, form), form, result);
    else
      append_normalized(part, form, result);
    copied = base = at = end;
  }
  result.append(text, copied);
  return result;
}

}  // namespace mgpu::text
