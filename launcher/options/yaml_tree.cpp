#include "launcher/options/yaml_tree.hpp"

#include <stdexcept>

#include <fmt/format.h>

namespace mgpu::launcher {
namespace {

constexpr std::size_t kMostYamlBytes = 1 << 20;

rendezvous::YamlRules rules_of(const std::string& section) {
  rendezvous::YamlRules rules;
  rules.most_bytes = kMostYamlBytes;
  rules.only_section = section;
  rules.too_large =
      fmt::format("the file is larger than {} KiB, the limit; is it a recipe or config file?",
                  kMostYamlBytes / 1024);
  rules.second_document = "a second YAML document starts here; only one is allowed";
  rules.too_deep = fmt::format("nested deeper than {} levels, the limit", rules.deepest);
  rules.quote = "\"";
  return rules;
}

YamlNode tree_of(const std::string& text, const std::string& path, const std::string& section) {
  try {
    return rendezvous::parse_yaml(text, rules_of(section));
  } catch (const rendezvous::YamlError& error) {
    throw UsageError(fmt::format("{}: {}", at_line(path, error.line()), error.what()));
  }
}

std::string text_of(const std::string& path, const Origin& origin) {
  try {
    return rendezvous::read_yaml_text(path, kMostYamlBytes, false);
  } catch (const std::runtime_error& error) {
    throw UsageError(origin.name.empty() ? error.what()
                                         : fmt::format("{}: {}", origin.name, error.what()));
  }
}

}  // namespace

YamlNode parse_yaml(const std::string& text, const std::string& path, const std::string& section) {
  auto top = tree_of(text, path, section);
  if (top.kind == YamlNode::Kind::null)
    throw UsageError(
        fmt::format("{}: the file is empty; need \"key: value\" lines", at_line(path, 1)));
  if (top.kind != YamlNode::Kind::map)
    throw UsageError(fmt::format("{}: need \"key: value\" lines", at_line(path, top.line)));
  return top;
}

YamlNode read_yaml(const std::string& path, const std::string& section, const Origin& origin) {
  return parse_yaml(text_of(path, origin), path, section);
}

}  // namespace mgpu::launcher
