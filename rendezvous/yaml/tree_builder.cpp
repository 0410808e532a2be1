#include "rendezvous/yaml/tree_builder.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/spelling.hpp"

namespace mgpu::rendezvous {
namespace {

constexpr const char* kCoreTags = "tag:yaml.org,2002:";
constexpr const char* kStringTag = "tag:yaml.org,2002:str";

std::size_t depth_of(const YamlNode& node) {
  std::size_t deepest = 0;
  for (const auto& item : node.items) deepest = std::max(deepest, depth_of(item));
  return deepest + (node.is_list() || node.is_map() ? 1 : 0);
}

YamlNode node_at(const YAML::Mark& mark, YamlNode::Kind kind) {
  YamlNode node;
  node.kind = kind;
  node.line = mark.line + 1;
  return node;
}

}  // namespace

void YamlTreeBuilder::OnDocumentStart(const YAML::Mark& mark) {
  if (complete_) throw YamlError(mark.line + 1, rules_.second_document);
}

void YamlTreeBuilder::OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) {
  add(node_at(mark, YamlNode::Kind::null), anchor);
}

void YamlTreeBuilder::OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) {
  if (!rules_.expands_aliases) return add(node_at(mark, YamlNode::Kind::alias), 0);
  const auto found = anchors_.find(anchor);
  if (found == anchors_.end()) throw YamlError(mark.line + 1, "an alias is inside its own anchor");
  YamlNode copy = found->second;
  if (open_.size() + depth_of(copy) > rules_.deepest)
    throw YamlError(mark.line + 1, rules_.too_deep);
  count(copy);
  add(std::move(copy), 0);
}

void YamlTreeBuilder::OnScalar(const YAML::Mark& mark, const std::string& tag,
                               YAML::anchor_t anchor, const std::string& value) {
  check_tag(mark, tag);
  auto scalar = node_at(mark, YamlNode::Kind::scalar);
  scalar.text = value;
  scalar.quoted = tag == "!" || tag == kStringTag;
  add(std::move(scalar), anchor);
}

void YamlTreeBuilder::OnSequenceStart(const YAML::Mark& mark, const std::string& tag,
                                      YAML::anchor_t anchor, YAML::EmitterStyle::value) {
  check_tag(mark, tag);
  open(node_at(mark, YamlNode::Kind::list), anchor);
}

void YamlTreeBuilder::OnMapStart(const YAML::Mark& mark, const std::string& tag,
                                 YAML::anchor_t anchor, YAML::EmitterStyle::value) {
  check_tag(mark, tag);
  open(node_at(mark, YamlNode::Kind::map), anchor);
}

void YamlTreeBuilder::check_tag(const YAML::Mark& mark, const std::string& tag) const {
  if (!rules_.only_core_tags || tag.empty() || tag == "?" || tag == "!") return;
  for (const char* core : {"str", "int", "float", "bool", "null", "seq", "map", "merge"})
    if (tag == kCoreTags + std::string(core)) return;
  throw YamlError(mark.line + 1, fmt::format("the tag {} is not supported", shown(tag)));
}

bool YamlTreeBuilder::next_is_skipped() const {
  if (!rules_.only_section || open_.size() != 1 || !open_.front().node.is_map()) return false;
  const auto& items = open_.front().node.items;
  return items.size() % 2 == 0 || items.back().text != *rules_.only_section;
}

void YamlTreeBuilder::note_skipped() {
  auto& skipped = open_.back().node.items.back();
  if (skipped_ == 1 && skipped.items.empty()) skipped.items.emplace_back();
}

void YamlTreeBuilder::count(const YamlNode& value) {
  nodes_ += 1;
  text_ += value.text.size();
  if (nodes_ > rules_.most_nodes || text_ > rules_.most_text)
    throw YamlError(value.line, rules_.too_many);
  for (const auto& item : value.items) count(item);
}

void YamlTreeBuilder::add(YamlNode value, YAML::anchor_t anchor) {
  if (skipped_ > 0) return note_skipped();
  if (value.items.empty()) count(value);
  if (anchor != 0 && rules_.expands_aliases) {
    count(value);  // nested anchors would keep a copy of the same values for each level
    anchors_[anchor] = value;
  }
  if (open_.empty())
    top_ = std::move(value);
  else
    open_.back().node.items.push_back(std::move(value));
}

void YamlTreeBuilder::open(YamlNode value, YAML::anchor_t anchor) {
  const int line = value.line;
  if (skipped_ > 0 || next_is_skipped()) {
    if (skipped_ > 0) note_skipped();
    if (skipped_++ == 0) open_.back().node.items.push_back(std::move(value));
  } else {
    open_.push_back({std::move(value), anchor});
  }
  if (open_.size() + skipped_ > rules_.deepest)
    throw YamlError(skipped_ > 0 ? open_.back().node.line : line, rules_.too_deep);
}

void YamlTreeBuilder::close() {
  if (skipped_ > 0) {
    --skipped_;
    return;
  }
  Open done = std::move(open_.back());
  open_.pop_back();
  if (done.node.is_map()) {
    check_keys(done.node);
    if (rules_.finish_map) rules_.finish_map(done.node);
  }
  add(std::move(done.node), done.anchor);
}

void YamlTreeBuilder::check_keys(const YamlNode& map) const {
  std::map<std::string_view, int> lines;
  for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) {
    const auto& key = map.items[i];
    if (key.kind != YamlNode::Kind::scalar) {
      if (rules_.only_word_keys) throw YamlError(key.line, "a key must be a word");
      continue;
    }
    const auto [first, is_new] = lines.emplace(key.text, key.line);
    if (!is_new)
      throw YamlError(key.line,
                      fmt::format("the key {0}{1}{0} is repeated, first on line {2}; keep one",
                                  rules_.quote, shown(key.text), first->second));
  }
}

}  // namespace mgpu::rendezvous
