#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "runtime/text/regex.hpp"

namespace mgpu::text {

// tokenizer.json's "pattern": {"String": ...} or {"Regex": ...}.
struct Pattern {
  std::string literal;  // if not empty: matches exactly this text
  std::optional<Regex> regex;
};
Pattern read_pattern(const nlohmann::json& description);

// The Replace of normalizers and decoders: replaces every match by the same text.
class Replacement {
 public:
  Replacement() = default;
  explicit Replacement(const nlohmann::json& description);  // an object with pattern and content

  // Throws if the result has more than `longest` bytes.
  std::string apply(std::string_view text, std::size_t longest) const;

 private:
  Pattern pattern_;
  std::string content_;
};

}  // namespace mgpu::text
