#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/mark.h>

#include "rendezvous/yaml/yaml.hpp"

namespace mgpu::rendezvous {

// Builds the tree from yaml-cpp's events: YAML::Node would hide repeated keys, expand aliases
// without any limit, and store every value although only one section may be needed. Throws
// YamlError.
class YamlTreeBuilder : public YAML::EventHandler {
 public:
  explicit YamlTreeBuilder(const YamlRules& rules) : rules_(rules) {}

  YamlNode take() { return std::move(top_); }

  void OnDocumentStart(const YAML::Mark& mark) override;
  void OnDocumentEnd() override { complete_ = true; }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override;
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override;
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override;
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override;
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override;
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    YamlNode node;
    YAML::anchor_t anchor = 0;
  };

  void check_tag(const YAML::Mark& mark, const std::string& tag) const;
  bool next_is_skipped() const;  // it belongs to the top map and is not the wanted section
  void note_skipped();           // the skipped value is not empty
  void count(const YamlNode& value);
  void add(YamlNode value, YAML::anchor_t anchor);
  void open(YamlNode value, YAML::anchor_t anchor);
  void close();
  void check_keys(const YamlNode& map) const;

  const YamlRules& rules_;
  std::vector<Open> open_;   // from the top down to the one that is being filled
  std::size_t skipped_ = 0;  // open levels below a skipped value
  std::map<YAML::anchor_t, YamlNode> anchors_;
  std::size_t nodes_ = 0, text_ = 0;
  YamlNode top_;
  bool complete_ = false;
};

}  // namespace mgpu::rendezvous
