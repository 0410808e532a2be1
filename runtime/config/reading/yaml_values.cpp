#include "runtime/config/reading/yaml_values.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <string_view>

#include <fmt/format.h>

#include "rendezvous/base/spelling.hpp"

namespace mgpu::train {
namespace {

using Kind = YamlNode::Kind;

constexpr std::int64_t kMostGpus = 1024;            // of a node
constexpr std::size_t kMostSteps = 100;             // of a trace, whose file grows with each
constexpr double kWholeLimit = 9007199254740992.0;  // 2^53: larger doubles skip whole numbers

std::string described(const YamlNode& value) {
  switch (value.kind) {
    case Kind::null:
      return "an empty value";
    case Kind::scalar:
      return rendezvous::shown(value.text, 48);
    case Kind::list:
      return "a list";
    case Kind::map:
      return "a map";
    case Kind::alias:
      return "an alias";
  }
  return {};
}

[[noreturn]] void need(const char* what, const YamlNode& value) {
  throw std::runtime_error(fmt::format("need {}, not {}", what, described(value)));
}

std::string lower(std::string_view text) {
  std::string low(text);
  std::transform(low.begin(), low.end(), low.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return low;
}

bool digit(char c) {
  return c >= '0' && c <= '9';
}

// The text without a leading plus and without underscores between digits.
std::string plain_digits(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool between =
        text[i] == '_' && i > 0 && i + 1 < text.size() && digit(text[i - 1]) && digit(text[i + 1]);
    if (!between && !(i == 0 && text[i] == '+')) plain += text[i];
  }
  return plain;
}

// Characters without a special meaning in YAML, at any position of a word.
bool is_plain(char c) {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return letter || digit(c) || c == '_' || c == '.' || c == '/' || c == '+';
}

// A dash before a digit or a point, as in -0.5 and 1e-3, has no special meaning in YAML.
bool plain_in_flow(const std::string& text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool sign =
        text[i] == '-' && i + 1 < text.size() && (digit(text[i + 1]) || text[i + 1] == '.');
    if (!sign && !is_plain(text[i])) return false;
  }
  return !text.empty();
}

std::string in_quotes(const std::string& plain) {
  std::string text = "\"";
  for (const char c : plain) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      text += fmt::format("\\x{:02X}", byte);
      continue;
    }
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + '"';
}

// A scalar inside a list or a map, in quotes if the plain text would be read differently.
std::string nested_scalar(const YamlNode& value) {
  return !value.quoted && plain_in_flow(value.text) ? value.text : in_quotes(value.text);
}

std::string nested_text(const YamlNode& value) {
  if (value.kind == Kind::null) return "null";
  if (value.kind == Kind::scalar) return nested_scalar(value);
  std::string text(1, value.is_map() ? '{' : '[');
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    const bool after_key = value.is_map() && i % 2 == 1;
    if (i > 0) text += after_key ? ": " : ", ";
    text += nested_text(value.items[i]);
  }
  return text + (value.is_map() ? '}' : ']');
}

}  // namespace

bool is_null(const YamlNode& value) {
  if (value.kind == Kind::null) return true;
  if (value.kind != Kind::scalar || value.quoted) return false;
  return value.text.empty() || value.text == "~" || lower(value.text) == "null" ||
         value.text == "None";
}

bool to_flag(const YamlNode& value) {
  if (value.kind == Kind::scalar) {
    const auto text = lower(value.text);
    for (const char* yes : {"true", "yes", "on", "1"})
      if (text == yes) return true;
    for (const char* no : {"false", "no", "off", "0"})
      if (text == no) return false;
  }
  need("true or false", value);
}

double to_number(const YamlNode& value) {
  if (value.kind != Kind::scalar) need("a number", value);
  const auto text = plain_digits(value.text);
  double number = 0;
  const auto end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc::result_out_of_range) need("a number within the range of a double", value);
  if (error != std::errc() || stop != end || !std::isfinite(number)) need("a number", value);
  return number;
}

std::int64_t to_whole(const YamlNode& value) {
  if (value.kind != Kind::scalar) need("a whole number", value);
  const auto text = plain_digits(value.text);
  const auto end = text.data() + text.size();
  std::int64_t whole = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, whole);
  if (error == std::errc() && stop == end) return whole;
  double number = 0;
  const auto [last, wrong] = std::from_chars(text.data(), end, number);
  const bool exact = wrong == std::errc() && last == end && std::abs(number) <= kWholeLimit &&
                     number == std::trunc(number);
  if (!exact) need("a whole number", value);
  return static_cast<std::int64_t>(number);
}

std::string to_text(const YamlNode& value) {
  if (value.kind != Kind::scalar) need("text", value);
  return value.text;
}

std::vector<std::string> to_words(const YamlNode& value) {
  std::vector<std::string> words;
  if (value.is_list()) {
    for (const auto& item : value.items) words.push_back(to_text(item));
    return words;
  }
  std::string word;
  for (const char c : to_text(value) + ",") {
    if (c != ',' && c != ' ') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  return words;
}

std::vector<std::int64_t> to_gpus(const YamlNode& value) {
  std::vector<std::int64_t> gpus;
  for (const auto& word : to_words(value)) {
    std::int64_t gpu = -1;
    const auto end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data(), end, gpu);
    const bool fits = error == std::errc() && stop == end && gpu >= 0 && gpu < kMostGpus;
    if (!fits || std::find(gpus.begin(), gpus.end(), gpu) != gpus.end())
      need("GPU numbers without repetition", value);
    gpus.push_back(gpu);
  }
  if (gpus.empty()) need("GPU numbers without repetition", value);
  return gpus;
}

std::vector<std::int64_t> to_steps(const YamlNode& value) {
  constexpr auto kNeed = "steps counted from 1, as numbers and ranges such as [5, 10-12]";
  const auto to_step = [&](std::string_view digits) {
    std::int64_t step = 0;
    const auto end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, step);
    if (error != std::errc() || stop != end || step < 1) need(kNeed, value);
    return step;
  };
  std::vector<std::int64_t> steps;
  for (const std::string_view word : to_words(value)) {
    const auto dash = word.find('-');
    const auto first = to_step(word.substr(0, dash));
    const auto last = dash == word.npos ? first : to_step(word.substr(dash + 1));
    if (last < first) need(kNeed, value);
    if (last - first >= static_cast<std::int64_t>(kMostSteps) || steps.size() > kMostSteps)
      throw std::runtime_error(fmt::format("need at most {} steps", kMostSteps));
    for (auto step = first; step <= last; ++step) steps.push_back(step);
  }
  if (steps.empty()) need(kNeed, value);
  std::ranges::sort(steps);
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  if (steps.size() > kMostSteps)
    throw std::runtime_error(fmt::format("need at most {} steps", kMostSteps));
  return steps;
}

std::string flow_text(const YamlNode& value) {
  if (value.kind != Kind::scalar) return nested_text(value);
  // A plain scalar on one line reads back as itself.
  const bool plain = !value.quoted && value.text.find('\n') == std::string::npos;
  return plain || plain_in_flow(value.text) ? value.text : in_quotes(value.text);
}

}  // namespace mgpu::train
