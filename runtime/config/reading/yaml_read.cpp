#include "runtime/config/reading/yaml_read.hpp"

#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace mgpu::train {
namespace {

using rendezvous::YamlError;

constexpr std::size_t kMostBytes = 1 << 20;

// If several maps have a key, the first one wins.
void merge(const YamlNode& from, std::vector<YamlNode>& into, std::set<std::string>& taken) {
  if (from.is_list()) {
    for (const auto& map : from.items)
      if (map.is_map())
        merge(map, into, taken);
      else
        throw YamlError(map.line, "<<: needs a list of maps");
    return;
  }
  if (!from.is_map()) throw YamlError(from.line, "<<: needs a map, such as an alias");
  for (std::size_t i = 0; i + 1 < from.items.size(); i += 2) {
    if (!taken.insert(from.items[i].text).second) continue;
    into.push_back(from.items[i]);
    into.push_back(from.items[i + 1]);
  }
}

// `<<` adds the keys that the map does not have itself.
void apply_merge_key(YamlNode& map) {
  std::vector<YamlNode> own, merged;
  for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) {
    auto& target = map.items[i].text == "<<" && !map.items[i].quoted ? merged : own;
    target.push_back(map.items[i]);
    target.push_back(map.items[i + 1]);
  }
  if (merged.empty()) return;
  std::set<std::string> taken;
  for (std::size_t i = 0; i < own.size(); i += 2) taken.insert(own[i].text);
  merge(merged[1], own, taken);
  map.items = std::move(own);
}

rendezvous::YamlRules recipe_rules() {
  rendezvous::YamlRules rules;
  rules.most_bytes = kMostBytes;
  rules.most_nodes = 100'000;
  rules.most_text = 4 << 20;
  rules.expands_aliases = true;
  rules.only_core_tags = true;
  rules.only_word_keys = true;
  rules.finish_map = apply_merge_key;
  rules.too_large =
      fmt::format("the file is over {} KiB; is this a recipe?", rules.most_bytes / 1024);
  rules.second_document = "a second document starts here; a recipe is a single document";
  rules.too_deep = fmt::format("nested deeper than {} levels", rules.deepest);
  rules.too_many = "expands to more than a recipe may hold; too many aliases?";
  return rules;
}

// JSON may be indented with tabs, YAML may not. Tabs after the indentation are kept.
std::string without_json_tabs(std::string text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos || text[first] != '{') return text;
  bool indent = true;
  for (char& c : text) {
    if (c == '\n')
      indent = true;
    else if (c == '\t' && indent)
      c = ' ';
    else if (c != ' ')
      indent = false;
  }
  return text;
}

}  // namespace

YamlNode parse_yaml(const std::string& text, const std::string& name) {
  try {
    return rendezvous::parse_yaml(without_json_tabs(text), recipe_rules());
  } catch (const YamlError& error) {
    throw std::runtime_error(fmt::format("{}: {}", at_line(name, error.line()), error.what()));
  }
}

YamlNode read_yaml(const std::string& path) {
  return parse_yaml(rendezvous::read_yaml_text(path, kMostBytes, true), path);
}

}  // namespace mgpu::train
