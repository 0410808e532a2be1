#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace mgpu::text {

// Metaspace, as pre-tokenizer and as decoder: spaces are written as a mark, and text may get one
// more in front.
struct Metaspace {
  enum class Prefix { always, first, never };

  std::string mark;  // one character
  Prefix prefix = Prefix::always;
};

Metaspace read_metaspace(const nlohmann::json& description);

}  // namespace mgpu::text
