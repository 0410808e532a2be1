#include "runtime/config/keys/key_fields.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "rendezvous/base/spelling.hpp"
#include "runtime/config/reading/yaml_values.hpp"

namespace mgpu::train {
namespace {

std::string shown_flag(bool value) {
  return value ? "true" : "false";
}

std::string range_text(const Range& range) {
  const bool low = std::isfinite(range.least), high = std::isfinite(range.most);
  const auto from =
      low ? fmt::format("{} {}", range.above ? "above" : "at least", range.least) : std::string();
  if (!high) return from;
  const auto to = fmt::format("{} {}", range.below ? "below" : "at most", range.most);
  return low ? from + " and " + to : to;
}

template <class Number>
Field whole_field(Number TrainConfig::* member, Range range) {
  return {.value = "N",
          .set =
              [=](TrainConfig& c, const YamlNode& v) {
                const auto number = to_whole(v);
                range.check(static_cast<double>(number));
                c.*member = static_cast<Number>(number);
              },
          .show = [=](const TrainConfig& c) { return std::to_string(c.*member); }};
}

std::uint64_t to_seed(const YamlNode& value) {
  const auto number = to_whole(value);
  at_least(0).check(static_cast<double>(number));
  return static_cast<std::uint64_t>(number);
}

std::string folded(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
    return c == '-' ? '_' : static_cast<char>(std::tolower(c));
  });
  return text;
}

}  // namespace

void Range::check(double number) const {
  const bool low = number < least || (above && number == least);
  const bool high = number > most || (below && number == most);
  if (low || high)
    throw std::runtime_error(
        fmt::format("need a number {}, not {}", range_text(*this), shown_number(number)));
}

Range above(double least) {
  return {.least = least, .above = true};
}

Range at_least(double least) {
  return {.least = least};
}

Range between(double least, double most) {
  return {.least = least, .most = most};
}

Field shown_as(std::function<std::string(const TrainConfig&)> show) {
  return {.show = std::move(show)};
}

Field flag(bool TrainConfig::* member) {
  return {.value = "true|false",
          .set = [=](TrainConfig& c, const YamlNode& v) { c.*member = to_flag(v); },
          .show = [=](const TrainConfig& c) { return shown_flag(c.*member); }};
}

Field inverse(bool TrainConfig::* member) {
  return {.value = "true|false",
          .set = [=](TrainConfig& c, const YamlNode& v) { c.*member = !to_flag(v); }};
}

Field flag(std::optional<bool> TrainConfig::* member) {
  return {.value = "true|false|auto",
          .set =
              [=](TrainConfig& c, const YamlNode& v) {
                c.*member = v.text == "auto" ? std::optional<bool>() : to_flag(v);
              },
          .show =
              [=](const TrainConfig& c) {
                return c.*member ? shown_flag(*(c.*member)) : std::string("auto");
              }};
}

Field number(double TrainConfig::* member, Range range) {
  return {.value = "NUMBER",
          .set =
              [=](TrainConfig& c, const YamlNode& v) {
                const double number = to_number(v);
                range.check(number);
                c.*member = number;
              },
          .show = [=](const TrainConfig& c) { return shown_number(c.*member); }};
}

Field whole(std::int64_t TrainConfig::* member, Range range) {
  return whole_field(member, range);
}

Field whole(int TrainConfig::* member, Range range) {
  range.most = std::min(range.most, static_cast<double>(std::numeric_limits<int>::max()));
  return whole_field(member, range);
}

Field seed(std::uint64_t TrainConfig::* member) {
  return {.value = "N",
          .set = [=](TrainConfig& c, const YamlNode& v) { c.*member = to_seed(v); },
          .show = [=](const TrainConfig& c) { return std::to_string(c.*member); }};
}

Field seed(std::optional<std::uint64_t> TrainConfig::* member) {
  return {.value = "N",
          .set = [=](TrainConfig& c, const YamlNode& v) { c.*member = to_seed(v); },
          .show =
              [=](const TrainConfig& c) {
                return c.*member ? std::to_string(*(c.*member)) : std::string("as seed");
              }};
}

Field text(std::string TrainConfig::* member) {
  return {.value = "TEXT",
          .set = [=](TrainConfig& c, const YamlNode& v) { c.*member = to_text(v); },
          .show = [=](const TrainConfig& c) { return c.*member; }};
}

Field words(std::vector<std::string> TrainConfig::* member) {
  return {.value = "LIST",
          .set = [=](TrainConfig& c, const YamlNode& v) { c.*member = to_words(v); },
          .show = [=](const TrainConfig& c) { return shown_words(c.*member); }};
}

Field numbers(std::vector<double> TrainConfig::* member, Range range) {
  return {.value = "LIST",
          .set =
              [=](TrainConfig& c, const YamlNode& v) {
                std::vector<double> read;
                if (!v.is_list())
                  throw std::runtime_error("need a list of numbers, such as [1, 2]");
                for (const auto& item : v.items) range.check(read.emplace_back(to_number(item)));
                c.*member = std::move(read);
              },
          .show =
              [=](const TrainConfig& c) {
                std::vector<std::string> shown;
                for (const double n : c.*member) shown.push_back(shown_number(n));
                return shown_words(shown);
              }};
}

std::size_t choose(const YamlNode& value, const std::vector<std::string>& known,
                   const std::vector<bool>& listed) {
  const auto word = folded(to_text(value));
  std::string list;
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (folded(known[i]) == word) return i;
    if (listed[i]) list += (list.empty() ? "" : ", ") + known[i];
  }
  throw std::runtime_error(
      fmt::format("need one of {}, not {}", list, rendezvous::shown(value.text, 48)));
}

std::string shown_number(double number) {
  return fmt::format("{}", number);
}

std::string shown_words(const std::vector<std::string>& words) {
  return words.empty() ? "" : fmt::format("[{}]", fmt::join(words, ", "));
}

}  // namespace mgpu::train
