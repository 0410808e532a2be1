#include "rendezvous/yaml/yaml.hpp"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/small_file.hpp"
#include "rendezvous/base/spelling.hpp"
#include "rendezvous/yaml/tree_builder.hpp"

namespace mgpu::rendezvous {
namespace {

// The first line, from `from` on, that is indented with a tab; 0 if there is none.
int tab_line(std::string_view text, int from) {
  int line = 1;
  for (std::size_t begin = 0; begin < text.size(); ++line) {
    const auto end = std::min(text.find('\n', begin), text.size());
    const auto indent = text.substr(begin, end - begin);
    const auto stop = std::min(indent.find_first_not_of(" \t"), indent.size());
    if (line >= from && indent.substr(0, stop).find('\t') != indent.npos) return line;
    begin = end + 1;
  }
  return 0;
}

int line_of(std::string_view text, std::size_t offset) {
  const auto begin = text.begin();
  return 1 + static_cast<int>(std::count(begin, begin + static_cast<std::ptrdiff_t>(offset), '\n'));
}

}  // namespace

YamlNode parse_yaml(const std::string& text, const YamlRules& rules) {
  if (text.size() > rules.most_bytes) throw YamlError(1, rules.too_large);
  if (const auto nul = text.find('\0'); nul != text.npos)
    throw YamlError(line_of(text, nul), "contains a NUL byte; is this a text file?");
  YamlTreeBuilder builder(rules);
  try {
    std::istringstream in(text);
    YAML::Parser parser(in);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& e) {
    const int line = e.mark.is_null() ? 1 : e.mark.line + 1;
    if (const int tab = tab_line(text, std::max(1, line - 1)); tab > 0 && tab <= line + 1)
      throw YamlError(tab, "this line is indented with a tab; YAML requires spaces");
    throw YamlError(line, "invalid YAML: " + shown(e.msg, 120));
  }
  return builder.take();
}

std::string read_yaml_text(const std::string& path, std::size_t most_bytes, bool only_regular) {
  using State = SmallFile::State;
  auto file =
      read_small_file(path, most_bytes + 1, only_regular ? FileKind::regular : FileKind::any);
  if (file.complete() || file.state == State::too_large) return std::move(file.text);
  const auto failed = "cannot read " + shown(path, 300);
  if (file.state == State::not_regular) throw std::runtime_error(failed + ": not a regular file");
  throw_errno(failed, file.error);
}

std::string at_line(const std::string& name, int line) {
  return fmt::format("{}:{}", shown(name, 300), line);
}

}  // namespace mgpu::rendezvous
