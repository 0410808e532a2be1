#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/config/reading/yaml_read.hpp"

namespace mgpu::train {

// How a key is read into the configuration, and how the configuration shows it. `set` throws
// std::runtime_error("need ..."); lines that it adds to config.notes are about this key.
struct Field {
  std::string value;  // what the reference calls the value
  std::function<void(TrainConfig&, const YamlNode&)> set;
  std::function<std::string(const TrainConfig&)> show;  // empty: shown by another key
};

// The numbers a key takes.
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool above = false;  // `least` itself is out
  bool below = false;  // `most` itself is out

  void check(double number) const;  // throws "need a number above 0, not -1"
};

Range above(double least);
Range at_least(double least);
Range between(double least, double most);

// Only shown: a rule sets it.
Field shown_as(std::function<std::string(const TrainConfig&)> show);

Field flag(bool TrainConfig::* member);
Field inverse(bool TrainConfig::* member);  // true sets false; shown by another key
Field flag(std::optional<bool> TrainConfig::* member);
Field number(double TrainConfig::* member, Range range);
Field whole(std::int64_t TrainConfig::* member, Range range);
Field whole(int TrainConfig::* member, Range range);
Field seed(std::uint64_t TrainConfig::* member);
Field seed(std::optional<std::uint64_t> TrainConfig::* member);
Field text(std::string TrainConfig::* member);
Field words(std::vector<std::string> TrainConfig::* member);
Field numbers(std::vector<double> TrainConfig::* member, Range range);

// A word and what it stands for; of several words for one thing the first is shown.
template <class Value>
using Words = std::vector<std::pair<std::string, Value>>;

// The place of a value's text in `known`, whatever its case, with - for _; throws "need one of
// ..., not ..." and lists each thing once.
std::size_t choose(const YamlNode& value, const std::vector<std::string>& known,
                   const std::vector<bool>& listed);

template <class Value>
Value choose(const YamlNode& value, const Words<Value>& words) {
  std::vector<std::string> known;
  std::vector<bool> listed;
  for (std::size_t i = 0; i < words.size(); ++i) {
    bool first = true;
    for (std::size_t j = 0; j < i; ++j) first = first && !(words[j].second == words[i].second);
    known.push_back(words[i].first);
    listed.push_back(first);
  }
  return words[choose(value, known, listed)].second;
}

template <class Value>
std::string word_for(const Value& value, const Words<Value>& words) {
  for (const auto& [word, meant] : words)
    if (meant == value) return word;
  return {};
}

template <class Value>
Field choice(Value TrainConfig::* member, Words<Value> words) {
  std::string listed;
  for (const auto& [word, meant] : words)
    if (word == word_for(meant, words)) listed += (listed.empty() ? "" : "|") + word;
  return {.value = listed,
          .set = [=](TrainConfig& c, const YamlNode& v) { c.*member = choose(v, words); },
          .show = [=](const TrainConfig& c) { return word_for(c.*member, words); }};
}

std::string shown_number(double number);
std::string shown_words(const std::vector<std::string>& words);

}  // namespace mgpu::train
