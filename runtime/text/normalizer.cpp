#include "runtime/text/normalizer.hpp"

#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/text/json_fields.hpp"
#include "runtime/text/unicode.hpp"

namespace mgpu::text {

Normalizer::Normalizer(const nlohmann::json& description) {
  if (!description.is_null()) read(description);
}

void Normalizer::read(const nlohmann::json& description) {
  const std::string type = type_of(description, "normalizer");
  check_step_count(steps_.size(), "normalizer");
  if (type == "Sequence") {
    for (const auto& each : list_field(description, "normalizers")) read(each);
  } else if (type == "NFC") {
    steps_.push_back({.kind = Kind::nfc});
  } else if (type == "Prepend") {
    steps_.push_back({.kind = Kind::prepend, .prefix = string_field(description, "prepend")});
  } else if (type == "Replace") {
    steps_.push_back({.kind = Kind::replace, .replacement = Replacement(description)});
  } else {
    refuse_type("normalizer", type);
  }
}

std::string_view Normalizer::apply(std::string_view text, std::string& buffer) const {
  const std::size_t given = text.size();
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Kind::nfc:
        if (passes_nfc_quick_check(text)) continue;
        buffer = nfc(text);
        break;
      case Kind::prepend:
        if (text.empty()) continue;
        buffer = step.prefix + std::string(text);
        break;
      case Kind::replace:
        buffer = step.replacement.apply(text, longest_result(given));
        break;
    }
    if (buffer.size() > longest_result(given)) refuse_growth();
    text = buffer;
  }
  return text;
}

}  // namespace mgpu::text
