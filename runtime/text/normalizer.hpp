#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "runtime/text/replacement.hpp"

namespace mgpu::text {

// The "normalizer" of tokenizer.json, which changes text before it is split: NFC, Prepend, Replace,
// or a Sequence of them.
class Normalizer {
 public:
  Normalizer() = default;  // leaves text unchanged
  // Throws an error that names any other type.
  explicit Normalizer(const nlohmann::json& description);

  // Returns the normalized text: `text` itself, or a view of `buffer`.
  std::string_view apply(std::string_view text, std::string& buffer) const;

 private:
  enum class Kind { nfc, prepend, replace };
  struct Step {
    Kind kind = Kind::nfc;
    std::string prefix;
    Replacement replacement;
  };
  void read(const nlohmann::json& description);

  std::vector<Step> steps_;
};

}  // namespace mgpu::text
