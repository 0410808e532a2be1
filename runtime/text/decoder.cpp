#include "runtime/text/decoder.hpp"

#include <optional>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "rendezvous/base/input_error.hpp"
#include "runtime/text/byte_alphabet.hpp"
#include "runtime/text/json_fields.hpp"
#include "runtime/text/unicode.hpp"

namespace mgpu::text {
namespace {

std::string joined(const std::vector<std::string>& tokens, std::string_view between) {
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) text += between;
    text += tokens[i];
  }
  return text;
}

// A token with a character that is not a byte's letter stays unchanged.
void append_bytes_of(const std::string& token, std::string& bytes) {
  const std::size_t before = bytes.size();
  for (std::size_t at = 0; at < token.size();) {
    const CodePoint c = code_point_at(token, at);
    const auto byte = byte_of_letter(c.value);
    if (!byte) {
      bytes.resize(before);
      bytes += token;
      return;
    }
    bytes.push_back(static_cast<char>(*byte));
    at += c.size;
  }
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// "<0x0A>" is byte 10.
std::optional<char> byte_token(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  const int high = token[3] == '+' ? 0 : hex_digit(token[3]);  // Rust's parser accepts a plus sign
  const int low = hex_digit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

// Runs of byte tokens become text, or one U+FFFD per byte if they are not valid UTF-8.
std::vector<std::string> with_bytes_as_text(std::vector<std::string> tokens) {
  std::vector<std::string> out;
  std::string bytes;
  const auto flush = [&] {
    if (bytes.empty()) return;
    if (first_invalid_utf8(bytes)) {
      for (std::size_t i = 0; i < bytes.size(); ++i) out.emplace_back("\uFFFD");
    } else {
      out.push_back(bytes);
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = byte_token(token)) {
      bytes.push_back(*byte);
    } else {
      flush();
      out.push_back(std::move(token));
    }
  }
  flush();
  return out;
}

void strip(std::string& token, const std::string& character, std::size_t at_start,
           std::size_t at_end) {
  std::size_t begin = 0;
  std::size_t end = token.size();
  const auto is = [&](std::size_t at) {
    return token.compare(at, character.size(), character) == 0;
  };
  for (; at_start > 0 && is(begin) && begin < end; --at_start) begin += character.size();
  for (; at_end > 0 && end >= begin + character.size() && is(end - character.size()); --at_end) {
    end -= character.size();
  }
  token = token.substr(begin, end - begin);
}

void unmark(std::string& token, const Metaspace& metaspace, bool first) {
  std::string changed;
  const bool dropped = first && metaspace.prefix != Metaspace::Prefix::never;
  for (std::size_t at = 0; at < token.size();) {
    const std::size_t size = code_point_at(token, at).size;
    if (token.compare(at, size, metaspace.mark) != 0) {
      changed.append(token, at, size);
    } else if (!dropped) {
      changed.push_back(' ');
    }
    at += size;
  }
  token = std::move(changed);
}

std::size_t count_field(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number_unsigned()) {
    throw rendezvous::InputError(fmt::format("\"{}\" must be a number of characters", name));
  }
  return found->get<std::size_t>();
}

}  // namespace

Decoder::Decoder(const nlohmann::json& description) {
  if (!description.is_null()) read(description);
}

void Decoder::read(const nlohmann::json& description) {
  joins_with_spaces_ = false;
  const std::string type = type_of(description, "decoder");
  check_step_count(steps_.size(), "decoder");
  if (type == "Sequence") {
    for (const auto& each : list_field(description, "decoders")) read(each);
  } else if (type == "ByteLevel") {
    steps_.push_back({.kind = Kind::byte_level});
  } else if (type == "Replace") {
    steps_.push_back({.kind = Kind::replace, .replacement = Replacement(description)});
  } else if (type == "ByteFallback") {
    steps_.push_back({.kind = Kind::byte_fallback});
  } else if (type == "Fuse") {
    steps_.push_back({.kind = Kind::fuse});
  } else if (type == "Strip") {
    steps_.push_back(read_strip(description));
  } else if (type == "Metaspace") {
    steps_.push_back({.kind = Kind::metaspace, .metaspace = read_metaspace(description)});
  } else {
    refuse_type("decoder", type);
  }
}

Decoder::Step Decoder::read_strip(const nlohmann::json& description) {
  Step step{.kind = Kind::strip,
            .stripped = string_field(description, "content"),
            .at_start = count_field(description, "start"),
            .at_end = count_field(description, "stop")};
  if (step.stripped.empty() || code_point_at(step.stripped, 0).size != step.stripped.size()) {
    throw rendezvous::InputError("\"content\" of decoder Strip must be one character");
  }
  return step;
}

void Decoder::apply(const Step& step, std::size_t given, std::vector<std::string>& tokens) {
  switch (step.kind) {
    case Kind::byte_level: {
      std::string bytes;
      for (const std::string& token : tokens) append_bytes_of(token, bytes);
      tokens = {first_invalid_utf8(bytes) ? to_valid_utf8(bytes) : std::move(bytes)};
      return;
    }
    case Kind::replace: {
      std::size_t left = longest_result(given);
      for (std::string& token : tokens) {
        token = step.replacement.apply(token, left);
        left -= token.size();
      }
      return;
    }
    case Kind::byte_fallback:
      tokens = with_bytes_as_text(std::move(tokens));
      return;
    case Kind::fuse:
      tokens = {joined(tokens, "")};
      return;
    case Kind::strip:
      for (std::string& token : tokens) strip(token, step.stripped, step.at_start, step.at_end);
      return;
    case Kind::metaspace:
      for (std::size_t i = 0; i < tokens.size(); ++i) unmark(tokens[i], step.metaspace, i == 0);
      return;
  }
}

std::string Decoder::decode(std::vector<std::string> tokens) const {
  if (joins_with_spaces_) return joined(tokens, " ");
  std::size_t given = 0;
  for (const std::string& token : tokens) given += token.size();
  for (const Step& step : steps_) apply(step, given, tokens);
  return joined(tokens, "");
}

}  // namespace mgpu::text
