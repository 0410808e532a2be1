#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace mgpu::text {

// Metaspace, used as pre-tokenizer and as decoder: spaces are replaced by a mark, and one may be
// added before the text.
struct Metaspace {
  enum class Prefix { always, first, never };

  std::string mark;  // one character
  Prefix prefix = Prefix::always;
};

Metaspace read_metaspace(const nlohmann::json& description);

}  // namespace mgpu::text
