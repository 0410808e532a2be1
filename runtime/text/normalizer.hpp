#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "runtime/text/precompiled_map.hpp"
#include "runtime/text/replacement.hpp"
#include "runtime/text/unicode.hpp"

namespace mgpu::text {

// The "normalizer" of tokenizer.json, which changes text before it is split: NFC, NFD, NFKC, NFKD,
// Precompiled, Prepend, Replace, Strip, or a Sequence of them.
class Normalizer {
 public:
  Normalizer() = default;  // leaves text unchanged
  // Throws an error that names any other type.
  explicit Normalizer(const nlohmann::json& description);

  struct Result {
    std::string_view text;        // the given text itself, or a view of `buffer`
    bool lost_its_start = false;  // Strip has removed the text's first characters
  };
  Result apply(std::string_view text, std::string& buffer) const;

 private:
  enum class Kind { form, precompiled, prepend, replace, strip };
  struct Step {
    Kind kind = Kind::form;
    Form form = Form::nfc;
    std::shared_ptr<const PrecompiledMap> map;
    std::string prefix;
    Replacement replacement;
    bool left = false, right = false;  // strip: on which sides
  };
  void read(const nlohmann::json& description);
  bool read_form(const std::string& type);
  static std::string changed(const Step& step, std::string_view text, std::size_t longest);

  std::vector<Step> steps_;
};

}  // namespace mgpu::text
