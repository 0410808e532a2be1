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

// How a key is read into the configuration and shown again. `set` throws
// std::runtime_error("need ..."); the lines that it adds to config.notes are about this key.
struct Field {
  std::string value;  // the value column of the reference
  std::function<void(TrainConfig&, const YamlNode&)> set;
  std::function<std::string(const TrainConfig&)> show;  // empty: another key shows the value
};

// The range of numbers that a key accepts.
struct Range {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool above = false;  // excludes `least`
  bool below = false;  // excludes `most`

  void check(double number) const;  // throws "need a number above 0, not -1"
};

Range above(double least);
Range at_least(double least);
Range between(double least, double most);

// A field without `set`: a rule sets the member.
Field shown_as(std::function<std::string(const TrainConfig&)> show);

Field flag(bool TrainConfig::* member);
Field inverse(bool TrainConfig::* member);  // true sets false; another key shows it
Field flag(std::optional<bool> TrainConfig::* member);
Field number(double TrainConfig::* member, Range range);
Field whole(std::int64_t TrainConfig::* member, Range range);
Field whole(int TrainConfig::* member, Range range);
Field seed(std::uint64_t TrainConfig::* member);
Field seed(std::optional<std::uint64_t> TrainConfig::* member);
Field text(std::string TrainConfig::* member);
Field words(std::vector<std::string> TrainConfig::* member);
Field numbers(std::vector<double> TrainConfig::* member, Range range);

// The names of a choice and their values. If several names have the same value, the first is shown.
template <class Value>
using Choices = std::vector<std::pair<std::string, Value>>;

// The index in `known` of a value's text; case is ignored and - equals _. Throws "need one of ...,
// not ..." with the names that are `listed`.
std::size_t choose(const YamlNode& value, const std::vector<std::string>& known,
                   const std::vector<bool>& listed);

template <class Value>
Value choose(const YamlNode& value, const Choices<Value>& choices) {
  std::vector<std::string> known;
  std::vector<bool> listed;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    bool first = true;
    for (std::size_t j = 0; j < i; ++j) first = first && !(choices[j].second == choices[i].second);
    known.push_back(choices[i].first);
    listed.push_back(first);
  }
  return choices[choose(value, known, listed)].second;
}

template <class Value>
std::string choice_name(const Value& value, const Choices<Value>& choices) {
  for (const auto& [name, meant] : choices)
    if (meant == value) return name;
  return {};
}

template <class Value>
Field choice(Value TrainConfig::* member, Choices<Value> choices) {
  std::string listed;
  for (const auto& [name, meant] : choices)
    if (name == choice_name(meant, choices)) listed += (listed.empty() ? "" : "|") + name;
  return {.value = listed,
          .set = [=](TrainConfig& c, const YamlNode& v) { c.*member = choose(v, choices); },
          .show = [=](const TrainConfig& c) { return choice_name(c.*member, choices); }};
}

std::string shown_number(double number);
std::string shown_words(const std::vector<std::string>& words);

}  // namespace mgpu::train
