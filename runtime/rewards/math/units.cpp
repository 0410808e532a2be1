#include <algorithm>
#include <array>
#include <string_view>

#include "runtime/rewards/math/character_class.hpp"
#include "runtime/rewards/math/normalize.hpp"

namespace mgpu::rewards::math {
namespace {

// Sorted. Units and counted things; each may have the plural ending s or es.
constexpr std::array kUnits = {
    "acre",     "am",         "apple",      "book",     "c",         "car",       "cc",
    "cent",     "centimeter", "centimetre", "cm",       "coin",      "cube",      "cubic",
    "cup",      "d",          "day",        "decrease", "deg",       "degree",    "digit",
    "dm",       "dollar",     "edge",       "east",     "euro",      "feet",      "foot",
    "ft",       "g",          "gain",       "gal",      "gallon",    "gm",        "gram",
    "h",        "hectare",    "hour",       "hr",       "hz",        "in",        "inch",
    "increase", "integer",    "kg",         "kilogram", "kilometer", "kilometre", "km",
    "kmh",      "kmph",       "l",          "lb",       "less",      "liter",     "litre",
    "loss",     "m",          "man",        "mark",     "men",       "meter",     "metre",
    "mile",     "min",        "minute",     "ml",       "mm",        "month",     "more",
    "mph",      "mt",         "mtr",        "multiple", "newton",    "noon",      "number",
    "ohm",      "orange",     "pages",      "people",   "person",    "pie",       "piece",
    "pm",       "point",      "pound",      "prime",    "profit",    "ratio",     "rd",
    "round",    "rs",         "rupee",      "s",        "sec",       "second",    "soldier",
    "sq",       "square",     "st",         "student",  "t",         "th",        "tile",
    "toy",      "unit",       "volt",       "watt",     "way",       "week",      "west",
    "woman",    "women",      "yard",       "year",     "yr",
};

void trim_end(std::string& text) {
  while (!text.empty() && is_space_or_tab(text.back())) text.pop_back();
}

bool known(std::string_view word) {
  return std::find(kUnits.begin(), kUnits.end(), word) != kUnits.end();
}

bool is_unit(std::string_view word) {
  if (known(word)) return true;
  if (word.ends_with("es") && known(word.substr(0, word.size() - 2))) return true;
  return word.ends_with('s') && known(word.substr(0, word.size() - 1));
}

// The start of the brace group that ends at the last character; npos if there is none.
std::size_t group_begin(std::string_view text) {
  int depth = 0;
  for (std::size_t i = text.size(); i-- > 0;) {
    if (text[i] == '}') ++depth;
    if (text[i] == '{' && --depth == 0) return i;
  }
  return text.npos;
}

// The text before `\text{ cm}` at the end, which may have a power.
std::string without_text(const std::string& text) {
  std::string_view rest = text;
  while (!rest.empty() && is_space_or_tab(rest.back())) rest.remove_suffix(1);
  for (const std::size_t power : {std::size_t{2}, std::size_t{4}}) {
    if (rest.size() <= power) continue;
    const auto tail = rest.substr(rest.size() - power);
    if ((power == 2 && tail[0] == '^' && is_digit(tail[1])) ||
        (power == 4 && tail.starts_with("^{") && is_digit(tail[2]) && tail[3] == '}')) {
      rest.remove_suffix(power);
      break;
    }
  }
  if (!rest.ends_with('}')) return text;
  const auto begin = group_begin(rest);
  if (begin == rest.npos) return text;
  auto before = rest.substr(0, begin);
  while (!before.empty() && is_space_or_tab(before.back())) before.remove_suffix(1);
  if (!before.ends_with("\\text")) return text;
  std::string left(before.substr(0, before.size() - 5));
  trim_end(left);
  const bool bare = left.find_first_not_of(" \t") == left.npos;
  return bare ? text : left;
}

std::string without_word(const std::string& text) {
  std::size_t end = text.size();
  while (end > 0 && is_space_or_tab(text[end - 1])) --end;
  std::size_t begin = end;
  while (begin > 0 && is_letter(text[begin - 1])) --begin;
  if (begin == end || begin == 0) return text;
  if (!is_unit(std::string_view(text).substr(begin, end - begin))) return text;
  std::size_t before = begin;
  while (before > 0 && is_space_or_tab(text[before - 1])) --before;
  if (before == 0) return text;
  const char last = text[before - 1];
  // A single letter is a unit only after a number: x + m is a sum.
  const bool fits = end - begin == 1
                        ? is_digit(last)
                        : is_digit(last) || last == '}' || (before < begin && is_letter(last));
  return fits ? text.substr(0, before) : text;
}

}  // namespace

std::string without_units(std::string text) {
  text = without_text(text);
  for (int i = 0; i < 2; ++i) text = without_word(text);
  return text;
}

}  // namespace mgpu::rewards::math
