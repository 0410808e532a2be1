#include "rendezvous/yaml/yaml.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <string_view>

#include <fmt/format.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/spelling.hpp"
#include "rendezvous/base/unique_fd.hpp"
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
  const auto cannot = [&path](const std::string& why) {
    throw std::runtime_error(fmt::format("cannot read {}: {}", shown(path, 300), why));
  };
  // O_NONBLOCK: a pipe without a writer is refused at once instead of blocking.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | (only_regular ? O_NONBLOCK : 0)));
  if (!fd) cannot(error_text(errno));
  struct stat about{};
  if (::fstat(fd.get(), &about) != 0) cannot(error_text(errno));
  if (only_regular && !S_ISREG(about.st_mode)) cannot("not a regular file");
  std::string text;
  char buffer[16384];
  while (text.size() <= most_bytes) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) cannot(error_text(errno));
    if (n == 0) break;
    text.append(buffer, static_cast<std::size_t>(n));
  }
  return text;
}

std::string at_line(const std::string& name, int line) {
  return fmt::format("{}:{}", shown(name, 300), line);
}

}  // namespace mgpu::rendezvous
