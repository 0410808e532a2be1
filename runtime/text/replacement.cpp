#include "runtime/text/replacement.hpp"

#include <stdexcept>

#include <nlohmann/json.hpp>

#include "rendezvous/base/input_error.hpp"
#include "runtime/text/json_fields.hpp"

namespace mgpu::text {

Pattern read_pattern(const nlohmann::json& description) {
  const auto pattern = description.find("pattern");
  if (pattern == description.end() || !pattern->is_object() || pattern->size() != 1) {
    throw rendezvous::InputError("\"pattern\" must be {\"String\": ...} or {\"Regex\": ...}");
  }
  Pattern read;
  if (pattern->contains("Regex")) {
    read.regex.emplace(string_field(*pattern, "Regex"));
  } else {
    read.literal = string_field(*pattern, "String");
    if (read.literal.empty()) throw rendezvous::InputError("an empty pattern is not supported");
  }
  return read;
}

Replacement::Replacement(const nlohmann::json& description)
    : pattern_(read_pattern(description)), content_(string_field(description, "content")) {}

std::string Replacement::apply(std::string_view text, std::size_t longest) const {
  std::string replaced;
  replaced.reserve(text.size() + text.size() / 4);
  std::size_t copied = 0;
  const auto replace = [&](const Match& match) {
    replaced.append(text, copied, match.begin - copied);
    replaced += content_;
    copied = match.end;
    if (replaced.size() > longest) refuse_growth();
  };
  if (pattern_.regex) {
    for_each_match(*pattern_.regex, text, replace);
  } else {
    const std::string& literal = pattern_.literal;
    for (std::size_t at = 0; (at = text.find(literal, at)) != std::string_view::npos;) {
      replace({at, at + literal.size()});
      at += literal.size();
    }
  }
  replaced.append(text, copied);
  if (replaced.size() > longest) refuse_growth();
  return replaced;
}

}  // namespace mgpu::text
