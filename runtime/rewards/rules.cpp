#include "runtime/rewards/rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/spelling.hpp"
#include "rendezvous/base/untrusted_json.hpp"
#include "runtime/rewards/json_path.hpp"
#include "runtime/rewards/pattern.hpp"
#include "runtime/rewards/text_rewards.hpp"

namespace mgpu::rewards {
namespace {

using nlohmann::json;

constexpr int kDeepestJson = 100;
constexpr std::size_t kMostBraces = 200;  // opening braces that are tried

[[noreturn]] void refuse_rule(const std::string& name, const std::string& what) {
  throw rendezvous::InputError(
      fmt::format("rule {} of reward_rules: {}", rendezvous::shown(name), what));
}

double rule_number(const std::string& name, const json& rule, const char* key, double otherwise) {
  const auto found = rule.find(key);
  if (found == rule.end()) return otherwise;
  if (!found->is_number()) refuse_rule(name, fmt::format("{} must be a number", key));
  return found->get<double>();
}

std::string rule_text(const std::string& name, const json& rule, const char* key) {
  const auto found = rule.find(key);
  if (found == rule.end()) return "";
  if (!found->is_string()) refuse_rule(name, fmt::format("{} must be text", key));
  return found->get<std::string>();
}

void check_keys(const std::string& name, const json& rule, const std::vector<std::string>& known) {
  for (const auto& [key, value] : rule.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const auto near = rendezvous::nearest(key, known);
    refuse_rule(name, fmt::format("unknown key {}{}", rendezvous::shown(key),
                                  near.empty() ? "" : fmt::format("; did you mean {}?", near)));
  }
}

const json& column_of(const CompletionView& s, const std::string& name, const std::string& column) {
  const auto found = s.row->find(column);
  if (found == s.row->end())
    throw RewardInputError(name,
                           fmt::format("the dataset has no column {}", rendezvous::shown(column)));
  return *found;
}

std::string as_text(const json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::unique_ptr<Reward> regex_rule(const std::string& name, const json& rule) {
  check_keys(name, rule, {"regex", "flags", "column", "match", "otherwise"});
  const auto column = rule_text(name, rule, "column");
  const double match = rule_number(name, rule, "match", 1);
  const double otherwise = rule_number(name, rule, "otherwise", 0);
  Pattern pattern = [&] {
    try {
      return Pattern(rule_text(name, rule, "regex"),
                     Pattern::flags_of(rule_text(name, rule, "flags")));
    } catch (const std::runtime_error& e) {
      refuse_rule(name, e.what());
    }
  }();
  return per_completion(name, [=, pattern = std::move(pattern)](const CompletionView& s) -> Score {
    try {
      const auto found = pattern.find(s.completion);
      if (!found) return otherwise;
      if (column.empty()) return match;
      const auto text = found->group.value_or(
          std::string(s.completion.substr(found->begin, found->end - found->begin)));
      return text == as_text(column_of(s, name, column)) ? match : otherwise;
    } catch (const RewardInputError&) {
      throw;
    } catch (const std::runtime_error& e) {
      throw RewardError(name, e.what());
    }
  });
}

std::unique_ptr<Reward> json_rule(const std::string& name, const json& rule) {
  check_keys(name, rule, {"json", "equals", "column", "match", "otherwise", "invalid"});
  const auto column = rule_text(name, rule, "column");
  if (!column.empty() && rule.contains("equals"))
    refuse_rule(name, "equals and column cannot be used together");
  const double match = rule_number(name, rule, "match", 1);
  const double otherwise = rule_number(name, rule, "otherwise", 0);
  const double invalid = rule_number(name, rule, "invalid", otherwise);
  const std::optional<json> equals =
      rule.contains("equals") ? std::optional<json>(rule["equals"]) : std::nullopt;
  const JsonPath path = [&] {
    try {
      return JsonPath(rule_text(name, rule, "json"));
    } catch (const std::runtime_error& e) {
      refuse_rule(name, e.what());
    }
  }();
  return per_completion(name, [=](const CompletionView& s) -> Score {
    const auto document = json_in(s.completion);
    if (document.is_discarded()) return invalid;
    const auto* found = path.find(document);
    if (!found) return otherwise;
    if (equals) return *found == *equals ? match : otherwise;
    if (column.empty()) return match;
    const auto& wanted = column_of(s, name, column);
    return *found == wanted || as_text(*found) == as_text(wanted) ? match : otherwise;
  });
}

bool too_deep(std::string_view text) {
  int depth = 0;
  for (const char c : text) {
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (depth > kDeepestJson) return true;
  }
  return false;
}

json parsed(std::string_view text) {
  if (too_deep(text)) return json(json::value_t::discarded);
  return rendezvous::parse_untrusted_json(text);
}

}  // namespace

json json_in(std::string_view text) {
  if (auto whole = parsed(text); !whole.is_discarded()) return whole;
  constexpr std::string_view kFence = "```";
  if (const auto end = text.rfind(kFence); end != text.npos && end > 0) {
    const auto begin = text.rfind(kFence, end - 1);
    if (begin != text.npos) {
      auto block = text.substr(begin + 3, end - begin - 3);
      if (block.starts_with("json")) block.remove_prefix(4);
      if (auto fenced = parsed(block); !fenced.is_discarded()) return fenced;
    }
  }
  // From the last } back to the { with which the text between them is valid JSON.
  const auto end = text.rfind('}');
  if (end == text.npos) return json(json::value_t::discarded);
  auto begin = end;
  for (std::size_t i = 0; i < kMostBraces && begin > 0; ++i) {
    begin = text.rfind('{', begin - 1);
    if (begin == text.npos) break;
    if (auto object = parsed(text.substr(begin, end - begin + 1)); !object.is_discarded())
      return object;
  }
  return json(json::value_t::discarded);
}

std::unique_ptr<Reward> make_rule(const std::string& name, const json& rule) {
  if (!rule.is_object()) refuse_rule(name, "it must be a mapping with regex or json");
  if (rule.contains("regex") == rule.contains("json"))
    refuse_rule(name, "it must have either regex or json");
  return rule.contains("regex") ? regex_rule(name, rule) : json_rule(name, rule);
}

}  // namespace mgpu::rewards
