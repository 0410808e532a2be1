#include "launcher/options/yaml_values.hpp"

#include <fmt/format.h>

namespace mgpu::launcher {
namespace {

const char* kind_text(YamlNode::Kind kind) {
  switch (kind) {
    case YamlNode::Kind::null:
      return "nothing";
    case YamlNode::Kind::scalar:
      return "a value";
    case YamlNode::Kind::list:
      return "a list";
    case YamlNode::Kind::map:
      return "a map";
    case YamlNode::Kind::alias:
      return "an alias; write the value itself";
  }
  return "";
}

// The text of a list or map entry. Where entries are joined by commas, an entry that contains a
// comma would be split, so it is rejected.
std::string entry_text(const OptionSpec& spec, const YamlNode& node, const std::string& name) {
  auto text = scalar_text(node, name);
  if (!spec.repeats && text.find(',') != text.npos)
    throw UsageError(fmt::format(
        "{}: an entry may not contain a comma; write the whole list as one string", name));
  return text;
}

std::vector<std::string> list_entries(const OptionSpec& spec, const YamlNode& list,
                                      const std::string& name) {
  std::vector<std::string> entries;
  for (const auto& item : list.items) entries.push_back(entry_text(spec, item, name));
  return entries;
}

std::vector<std::string> map_entries(const OptionSpec& spec, const YamlNode& map,
                                     const std::string& name) {
  const char joint = spec.yaml == YamlForm::colon_map ? ':' : '=';
  std::vector<std::string> entries;
  for (std::size_t i = 0; i + 1 < map.items.size(); i += 2)
    entries.push_back(fmt::format("{}{}{}", entry_text(spec, map.items[i], name), joint,
                                  entry_text(spec, map.items[i + 1], name)));
  return entries;
}

}  // namespace

std::string scalar_text(const YamlNode& node, const std::string& name) {
  if (node.kind != YamlNode::Kind::scalar)
    throw UsageError(
        node.kind == YamlNode::Kind::null
            ? fmt::format("{}: the value is missing; write \"\" for an empty string", name)
            : fmt::format("{}: need a single value, not {}", name, kind_text(node.kind)));
  if (node.text.find('\0') != node.text.npos)
    throw UsageError(fmt::format(
        "{}: contains a NUL byte, which arguments and variables cannot hold; remove it", name));
  return node.text;
}

std::vector<std::string> option_texts(const OptionSpec& spec, const YamlNode& node,
                                      const std::string& name) {
  const bool takes_map = spec.yaml == YamlForm::colon_map || spec.yaml == YamlForm::equals_map;
  const bool takes_list = spec.yaml == YamlForm::list || spec.repeats;
  std::vector<std::string> entries;
  if (node.kind == YamlNode::Kind::map && takes_map)
    entries = map_entries(spec, node, name);
  else if (node.kind == YamlNode::Kind::list && takes_list)
    entries = list_entries(spec, node, name);
  else
    return {scalar_text(node, name)};
  if (spec.repeats) return entries;
  return {fmt::format("{}", fmt::join(entries, ","))};
}

}  // namespace mgpu::launcher
