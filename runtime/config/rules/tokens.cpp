// Rules about the chat template.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "rendezvous/base/spelling.hpp"
#include "runtime/config/reading/yaml_values.hpp"
#include "runtime/config/rules/rules.hpp"
#include "runtime/text/named_templates.hpp"

namespace mgpu::train {
namespace {

using rendezvous::shown;

bool is_template_file(const std::string& value) {
  return value.find_first_of("./") != value.npos;
}

std::string unknown_name(const std::string& name) {
  return fmt::format("need the name of a template ({}), a Jinja file or Jinja text, not {}",
                     fmt::join(text::chat_template_names(), ", "), shown(name, 48));
}

// Whether a value of chat_template is one.
bool is_template(const std::string& value) {
  const std::string fallback = kTokenizerTemplateOr;
  if (value.starts_with(fallback))
    return !text::named_chat_template(value.substr(fallback.size())).empty();
  return is_template_text(value) || !text::named_chat_template(value).empty() ||
         is_template_file(value);
}

}  // namespace

bool is_template_text(const std::string& value) {
  return value.find("{%") != value.npos || value.find("{{") != value.npos;
}

void template_rules(Reading& reading) {
  auto& config = reading.config;
  const auto* setting = reading.find("chat_template");
  const auto* jinja = reading.find("chat_template_jinja");
  const auto* name = reading.find("template");
  const auto contradicts = [&](const Setting& one, const Setting& other) {
    reading.error(one, fmt::format("contradicts {} ({}); keep one", other.written, other.where));
  };
  const bool by_jinja = setting && setting->value.text == "jinja";
  if (by_jinja && !jinja) return reading.error(*setting, "requires chat_template_jinja");
  if (by_jinja) setting = nullptr;
  if (setting && jinja) return contradicts(*jinja, *setting);
  if (name && (setting || jinja)) return contradicts(*name, setting ? *setting : *jinja);
  const auto* by = setting ? setting : jinja ? jinja : name;
  if (!by) return;
  const auto value = reading.read(*by, to_text).value_or("");
  if (value.empty() || value == "tokenizer_default") return;
  if (by == jinja  ? !is_template_text(value) && !is_template_file(value)
      : by == name ? text::named_chat_template(value).empty()
                   : !is_template(value))
    return reading.error(*by, unknown_name(value));
  config.chat_template = value;
}

}  // namespace mgpu::train
