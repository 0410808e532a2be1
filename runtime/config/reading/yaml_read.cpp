#include "runtime/config/reading/yaml_read.hpp"

#include <algorithm>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/small_file.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::train {
namespace {

using rendezvous::shown;

constexpr std::size_t kMostBytes = 1 << 20;
constexpr std::size_t kMostNodes = 100'000;  // including anchored copies and expanded aliases
constexpr std::size_t kMostText = 4 << 20;   // bytes, likewise
constexpr std::size_t kDeepest = 32;
constexpr const char* kCoreTags = "tag:yaml.org,2002:";

[[noreturn]] void fail(const std::string& name, int line, const std::string& what) {
  throw std::runtime_error(fmt::format("{}: {}", at_line(name, line), what));
}

std::size_t depth_of(const YamlNode& node) {
  std::size_t deepest = 0;
  for (const auto& item : node.items) deepest = std::max(deepest, depth_of(item));
  return deepest + (node.kind == YamlNode::Kind::list || node.is_map() ? 1 : 0);
}

// Builds the tree from yaml-cpp's events: YAML::Node would hide duplicate keys and expand aliases
// without any limit.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const std::string& name) : name_(name) {}

  YamlNode take() { return std::move(top_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (complete_)
      fail(name_, mark.line + 1, "a second document starts here; a recipe is a single document");
  }
  void OnDocumentEnd() override { complete_ = true; }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(node(mark, YamlNode::Kind::null), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) fail(name_, mark.line + 1, "an alias is inside its own anchor");
    YamlNode copy = found->second;
    if (open_.size() + depth_of(copy) > kDeepest) fail_depth(mark.line + 1);
    count(copy);
    add(std::move(copy), 0);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check_tag(mark, tag);
    auto scalar = node(mark, YamlNode::Kind::scalar);
    scalar.text = value;
    scalar.quoted = tag == "!" || tag == std::string(kCoreTags) + "str";
    add(std::move(scalar), anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    check_tag(mark, tag);
    open(node(mark, YamlNode::Kind::list), anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    check_tag(mark, tag);
    open(node(mark, YamlNode::Kind::map), anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    YamlNode node;
    YAML::anchor_t anchor = 0;
  };

  [[noreturn]] void fail_depth(int line) const {
    fail(name_, line, fmt::format("nested deeper than {} levels", kDeepest));
  }

  static YamlNode node(const YAML::Mark& mark, YamlNode::Kind kind) {
    return {.kind = kind, .line = mark.line + 1};
  }

  void check_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag.empty() || tag == "?" || tag == "!") return;
    for (const char* core : {"str", "int", "float", "bool", "null", "seq", "map", "merge"})
      if (tag == kCoreTags + std::string(core)) return;
    fail(name_, mark.line + 1, fmt::format("the tag {} is not supported", shown(tag)));
  }

  void count(const YamlNode& value) {
    nodes_ += 1;
    text_ += value.text.size();
    if (nodes_ > kMostNodes || text_ > kMostText)
      fail(name_, value.line, "expands to more than a recipe may hold; too many aliases?");
    for (const auto& item : value.items) count(item);
  }

  void add(YamlNode value, YAML::anchor_t anchor) {
    if (value.items.empty()) count(value);
    if (anchor != 0) {
      count(value);  // nested anchors would keep a copy of the same values for each level
      anchors_[anchor] = value;
    }
    if (open_.empty())
      top_ = std::move(value);
    else
      open_.back().node.items.push_back(std::move(value));
  }

  void open(YamlNode value, YAML::anchor_t anchor) {
    if (open_.size() >= kDeepest) fail_depth(value.line);
    open_.push_back({std::move(value), anchor});
  }

  void close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    if (done.node.is_map()) check_and_merge_keys(done.node);
    add(std::move(done.node), done.anchor);
  }

  // Requires unique scalar keys. `<<` then adds the keys that the map does not have itself.
  void check_and_merge_keys(YamlNode& map) {
    std::map<std::string_view, int> seen;
    std::vector<YamlNode> own, merged;
    for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) {
      const auto& key = map.items[i];
      if (key.kind != YamlNode::Kind::scalar) fail(name_, key.line, "a key must be a word");
      const auto [first, fresh] = seen.emplace(key.text, key.line);
      if (!fresh)
        fail(name_, key.line,
             fmt::format("the key {} is repeated, first on line {}; keep one", shown(key.text),
                         first->second));
    }
    for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) {
      auto& target = map.items[i].text == "<<" && !map.items[i].quoted ? merged : own;
      target.push_back(map.items[i]);
      target.push_back(map.items[i + 1]);
    }
    if (merged.empty()) return;
    std::map<std::string, int> taken;
    for (std::size_t i = 0; i < own.size(); i += 2) taken.emplace(own[i].text, own[i].line);
    merge(merged[1], own, taken);
    map.items = std::move(own);
  }

  // If several maps have a key, the first one wins.
  void merge(const YamlNode& from, std::vector<YamlNode>& into, std::map<std::string, int>& taken) {
    if (from.is_list()) {
      for (const auto& map : from.items)
        if (map.is_map())
          merge(map, into, taken);
        else
          fail(name_, map.line, "<<: needs a list of maps");
      return;
    }
    if (!from.is_map()) fail(name_, from.line, "<<: needs a map, such as an alias");
    for (std::size_t i = 0; i + 1 < from.items.size(); i += 2) {
      if (!taken.emplace(from.items[i].text, from.items[i].line).second) continue;
      into.push_back(from.items[i]);
      into.push_back(from.items[i + 1]);
    }
  }

  const std::string& name_;
  std::vector<Open> open_;  // from the top down to the one that is being filled
  std::map<YAML::anchor_t, YamlNode> anchors_;
  std::size_t nodes_ = 0, text_ = 0;
  YamlNode top_;
  bool complete_ = false;
};

[[noreturn]] void throw_too_large(const std::string& name) {
  fail(name, 1, fmt::format("the file is over {} KiB; is this a recipe?", kMostBytes / 1024));
}

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
  return 1 +
         static_cast<int>(std::count(text.begin(), text.begin() + static_cast<long>(offset), '\n'));
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

YamlNode parse_yaml(const std::string& given, const std::string& name) {
  if (given.size() > kMostBytes) throw_too_large(name);
  if (const auto nul = given.find('\0'); nul != given.npos)
    fail(name, line_of(given, nul), "contains a NUL byte; is this a text file?");
  const std::string text = without_json_tabs(given);
  TreeBuilder builder(name);
  try {
    std::istringstream in(text);
    YAML::Parser parser(in);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& e) {
    const int line = e.mark.is_null() ? 1 : e.mark.line + 1;
    if (const int tab = tab_line(text, std::max(1, line - 1)); tab > 0 && tab <= line + 1)
      fail(name, tab, "this line is indented with a tab; YAML requires spaces");
    fail(name, line, "invalid YAML: " + shown(e.msg, 120));
  }
  return builder.take();
}

YamlNode read_yaml(const std::string& path) {
  using State = rendezvous::SmallFile::State;
  const auto file = rendezvous::read_small_file(path, kMostBytes, rendezvous::FileKind::regular);
  if (file.state == State::too_large) throw_too_large(path);
  if (!file.complete())
    throw std::runtime_error(fmt::format("cannot read {}: {}", shown(path, 300),
                                         file.state == State::not_regular
                                             ? "not a regular file"
                                             : rendezvous::error_text(file.error)));
  return parse_yaml(file.text, path);
}

std::string at_line(const std::string& name, int line) {
  return fmt::format("{}:{}", shown(name, 300), line);
}

}  // namespace mgpu::train
