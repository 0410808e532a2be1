#include "launcher/options/yaml_tree.hpp"

#include <algorithm>
#include <map>
#include <sstream>
#include <string_view>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/small_file.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::launcher {

using rendezvous::shown;
namespace {

constexpr std::size_t kMostYamlBytes = 1 << 20;
constexpr int kDeepest = 32;

// Builds the tree from yaml-cpp's events rather than from YAML::Node, which follows aliases and
// stores every value although we need only one section.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(const std::string& path, const std::string& section)
      : path_(path), section_(section) {}

  YamlNode take() { return std::move(top_); }
  bool complete() const { return complete_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (complete_) fail(mark, "a second YAML document starts here; only one is allowed");
  }
  void OnDocumentEnd() override { complete_ = true; }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    add(node(mark, YamlNode::Kind::null));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    add(node(mark, YamlNode::Kind::alias));
  }
  void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                const std::string& value) override {
    add(node(mark, YamlNode::Kind::scalar, value));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    open(node(mark, YamlNode::Kind::list));
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    open(node(mark, YamlNode::Kind::map));
  }
  void OnMapEnd() override { close(); }

 private:
  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what) const {
    throw UsageError(fmt::format("{}: {}", at_line(path_, mark.line + 1), what));
  }

  static YamlNode node(const YAML::Mark& mark, YamlNode::Kind kind, std::string text = {}) {
    return {kind, std::move(text), mark.line + 1, {}};
  }

  // Whether the next value belongs to the top map and is not the wanted section.
  bool next_is_skipped() const {
    if (open_.size() != 1 || open_.front().kind != YamlNode::Kind::map) return false;
    const auto& items = open_.front().items;
    return items.size() % 2 == 0 || items.back().text != section_;
  }

  void add(YamlNode value) {
    if (skipped_ > 0) return note_skipped();
    if (open_.empty())
      top_ = std::move(value);
    else
      open_.back().items.push_back(std::move(value));
  }

  // Records that the skipped value is not empty.
  void note_skipped() {
    if (skipped_ == 1 && open_.back().items.back().items.empty())
      open_.back().items.back().items.emplace_back();
  }

  void open(YamlNode value) {
    if (skipped_ > 0 || next_is_skipped()) {
      note_skipped();
      if (skipped_++ == 0) open_.back().items.push_back(std::move(value));
    } else {
      open_.push_back(std::move(value));
    }
    if (static_cast<int>(open_.size()) + skipped_ > kDeepest)
      throw UsageError(fmt::format("{}: nested deeper than {} levels, the limit",
                                   at_line(path_, open_.back().line), kDeepest));
  }

  void close() {
    if (skipped_ > 0) {
      --skipped_;
      return;
    }
    auto done = std::move(open_.back());
    open_.pop_back();
    if (done.kind == YamlNode::Kind::map) reject_duplicates(done);
    add(std::move(done));
  }

  void reject_duplicates(const YamlNode& map) const {
    std::map<std::string_view, int> lines;
    for (std::size_t i = 0; i < map.items.size(); i += 2) {
      const auto& key = map.items[i];
      if (key.kind != YamlNode::Kind::scalar) continue;
      const auto [first, is_new] = lines.emplace(key.text, key.line);
      if (!is_new)
        throw UsageError(fmt::format("{}: the key \"{}\" is repeated, first on line {}; keep one",
                                     at_line(path_, key.line), shown(key.text), first->second));
    }
  }

  const std::string& path_;
  const std::string& section_;
  std::vector<YamlNode> open_;  // from the top map down to the innermost open value
  int skipped_ = 0;             // open levels below a skipped value
  YamlNode top_;
  bool complete_ = false;
};

[[noreturn]] void throw_too_large(const std::string& path) {
  throw UsageError(
      fmt::format("{}: the file is larger than {} KiB, the limit; is it a recipe or config file?",
                  at_line(path, 1), kMostYamlBytes / 1024));
}

// The line of the first tab in an indentation, at or after line `from`; 0: none.
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

}  // namespace

YamlNode parse_yaml(const std::string& text, const std::string& path, const std::string& section) {
  if (text.size() > kMostYamlBytes) throw_too_large(path);
  if (const auto nul = text.find('\0'); nul != text.npos)
    throw UsageError(fmt::format(
        "{}: contains a NUL byte; is this a text file?",
        at_line(path,
                1 + static_cast<int>(std::count(
                        text.begin(), text.begin() + static_cast<std::ptrdiff_t>(nul), '\n')))));
  TreeBuilder builder(path, section);
  try {
    std::istringstream in(text);
    YAML::Parser parser(in);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& e) {
    const int line = e.mark.is_null() ? 1 : e.mark.line + 1;
    if (const int tab = tab_line(text, std::max(1, line - 1)); tab > 0 && tab <= line + 1)
      throw UsageError(fmt::format("{}: this line is indented with a tab; YAML requires spaces",
                                   at_line(path, tab)));
    throw UsageError(fmt::format("{}: invalid YAML: {}", at_line(path, line), shown(e.msg, 120)));
  }
  auto top = builder.take();
  if (top.kind == YamlNode::Kind::null)
    throw UsageError(
        fmt::format("{}: the file is empty; need \"key: value\" lines", at_line(path, 1)));
  if (top.kind != YamlNode::Kind::map)
    throw UsageError(fmt::format("{}: need \"key: value\" lines", at_line(path, top.line)));
  return top;
}

YamlNode read_yaml(const std::string& path, const std::string& section, const Origin& origin) {
  const auto file = rendezvous::read_small_file(path, kMostYamlBytes);
  if (file.state == rendezvous::SmallFile::State::too_large) throw_too_large(path);
  if (!file.complete())
    throw UsageError(fmt::format("{}cannot read {}: {}",
                                 origin.name.empty() ? "" : origin.name + ": ", shown(path, 300),
                                 rendezvous::error_text(file.error)));
  return parse_yaml(file.text, path, section);
}

std::string at_line(const std::string& path, int line) {
  return fmt::format("{}:{}", shown(path, 300), line);
}

}  // namespace mgpu::launcher
