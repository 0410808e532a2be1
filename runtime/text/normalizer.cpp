#include "runtime/text/normalizer.hpp"

#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/text/json_fields.hpp"
#include "runtime/text/unicode.hpp"

namespace mgpu::text {
namespace {

std::string_view stripped(std::string_view text, bool left, bool right) {
  while (left && !text.empty() && is_white_space(code_point_at(text, 0).value))
    text.remove_prefix(code_point_at(text, 0).size);
  while (right && !text.empty() && is_white_space(code_point_before(text, text.size()).value))
    text.remove_suffix(code_point_before(text, text.size()).size);
  return text;
}

}  // namespace

Normalizer::Normalizer(const nlohmann::json& description) {
  if (!description.is_null()) read(description);
}

void Normalizer::read(const nlohmann::json& description) {
  const std::string type = type_of(description, "normalizer");
  check_step_count(steps_.size(), "normalizer");
  if (type == "Sequence") {
    for (const auto& each : list_field(description, "normalizers")) read(each);
  } else if (read_form(type)) {
    return;
  } else if (type == "Precompiled") {
    steps_.push_back({.kind = Kind::precompiled,
                      .map = std::make_shared<const PrecompiledMap>(
                          string_field(description, "precompiled_charsmap"))});
  } else if (type == "Prepend") {
    steps_.push_back({.kind = Kind::prepend, .prefix = string_field(description, "prepend")});
  } else if (type == "Replace") {
    steps_.push_back({.kind = Kind::replace, .replacement = Replacement(description)});
  } else if (type == "Strip") {
    steps_.push_back({.kind = Kind::strip,
                      .left = bool_field(description, "strip_left", true),
                      .right = bool_field(description, "strip_right", true)});
  } else {
    refuse_type("normalizer", type);
  }
}

bool Normalizer::read_form(const std::string& type) {
  constexpr std::pair<const char*, Form> kNamedForms[] = {
      {"NFC", Form::nfc}, {"NFD", Form::nfd}, {"NFKC", Form::nfkc}, {"NFKD", Form::nfkd}};
  for (const auto& [name, form] : kNamedForms) {
    if (type != name) continue;
    steps_.push_back({.kind = Kind::form, .form = form});
    return true;
  }
  return false;
}

std::string Normalizer::changed(const Step& step, std::string_view text, std::size_t longest) {
  switch (step.kind) {
    case Kind::form:
      return normalized(text, step.form);
    case Kind::precompiled:
      return step.map->apply(text, longest);
    case Kind::prepend:
      return text.empty() ? std::string() : step.prefix + std::string(text);
    case Kind::replace:
      return step.replacement.apply(text, longest);
    case Kind::strip:
      return std::string(stripped(text, step.left, step.right));
  }
  return {};
}

Normalizer::Result Normalizer::apply(std::string_view text, std::string& buffer) const {
  const std::size_t longest = longest_result(text.size());
  Result result{.text = text};
  for (const Step& step : steps_) {
    if (step.kind == Kind::form && passes_quick_check(result.text, step.form)) continue;
    if (step.kind == Kind::strip && step.left && stripped(result.text, true, false) != result.text)
      result.lost_its_start = true;
    buffer = changed(step, result.text, longest);
    if (buffer.size() > longest) refuse_growth();
    result.text = buffer;
  }
  return result;
}

}  // namespace mgpu::text
