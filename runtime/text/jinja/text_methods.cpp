#include "runtime/text/jinja/text_methods.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/text/jinja/arguments.hpp"
#include "runtime/text/jinja/eval.hpp"
#include "runtime/text/jinja/format.hpp"
#include "runtime/text/jinja/operators.hpp"
#include "runtime/text/jinja/text.hpp"
#include "runtime/text/jinja/text_search.hpp"

namespace mgpu::text::jinja {

namespace {

template <std::string (*change)(std::string_view)>
Value changing_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("the method", arguments, {});
  interpreter.budget().spend_bytes(self.text()->text.size() * 4);
  return {change(self.text()->text), self.text()->safe};
}

template <bool left, bool right>
Value stripped(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("strip", arguments, {"chars"});
  const auto& text = self.text()->text;
  interpreter.budget().spend_bytes(text.size());
  if (!given.has(0) || given[0].is_none())
    return {std::string(strip_space(text, left, right)), self.text()->safe};
  return {std::string(strip(text, text_argument(given[0], "strip"), left, right)),
          self.text()->safe};
}

Value replace_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("replace", arguments, {"old", "new", "count"}, 2);
  const Integer count = given.has(2) ? whole_number(given[2], "count") : -1;
  return {replace_all(self.text()->text, text_argument(given[0], "replace"),
                      text_argument(given[1], "replace"), count, interpreter.budget()),
          self.text()->safe};
}

Value join_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("join", arguments, {"iterable"}, 1);
  require_defined(given[0]);
  auto& budget = interpreter.budget();
  std::string out;
  bool first = true;
  const auto all = elements(given[0], budget);
  for (const auto& item : *all) {
    const bool safe = self.text()->safe;  // Markup's join accepts any value and escapes it
    const auto* part = item.text();
    if (!part && !safe)
      throw Failure(
          fmt::format("sequence item: expected str instance, {} found", item.type_name()));
    if (!first) out += self.text()->text;
    const std::string plain = to_text(item, budget);
    budget.spend_bytes(self.text()->text.size() + plain.size());
    out += safe && !(part && part->safe) ? escape_html(plain) : plain;
    first = false;
  }
  return {std::move(out), self.text()->safe};
}

Value format_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return format_braces(*self.text(), arguments, interpreter.budget());
}

Value format_map(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("format_map", arguments, {"mapping"}, 1);
  if (!given[0].dict()) throw Failure("format_map() takes a mapping");
  Arguments named;
  for (const auto& [key, value] : given[0].dict()->entries())
    if (key.text()) named.named.emplace_back(key.text()->text, value);
  return format_braces(*self.text(), named, interpreter.budget());
}

template <char align>
Value padded(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("the method", arguments, {"width", "fillchar"}, 1);
  const auto& text = self.text()->text;
  FormatSpec spec{.align = align};
  const Integer width = whole_number(given[0], "width");
  if (width > 1'000'000) throw Failure("a width is too large");
  spec.width = static_cast<std::size_t>(std::max<Integer>(width, 0));
  if (given.has(1)) spec.fill = text_argument(given[1], "fillchar");
  if (count_characters(spec.fill) != 1)
    throw Failure("The fill character must be exactly one character long");
  const std::size_t size = count_characters(text);
  // str.center puts the extra fill character on the left if the width is odd.
  if (align == '^' && spec.width > size && ((spec.width - size) & spec.width & 1) != 0)
    return {
        spec.fill + format_value(self, {.fill = spec.fill, .align = '^', .width = spec.width - 1},
                                 interpreter.budget()),
        self.text()->safe};
  return {format_value(Value(text), spec, interpreter.budget()), self.text()->safe};
}

Value zero_filled(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("zfill", arguments, {"width"}, 1);
  const auto& text = self.text()->text;
  const Integer width = whole_number(given[0], "width");
  if (width > 1'000'000) throw Failure("a width is too large");
  const auto size = static_cast<Integer>(count_characters(text));
  if (width <= size) return self;
  interpreter.budget().spend_bytes(static_cast<std::size_t>(width));
  const std::string zeros(static_cast<std::size_t>(width - size), '0');
  const bool sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  return {text.substr(0, sign) + zeros + text.substr(sign), self.text()->safe};
}

template <bool (*holds)(char32_t)>
Value all_characters(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("the method", arguments, {});
  const auto& text = self.text()->text;
  interpreter.budget().spend_bytes(text.size() * 4);
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, length] = character_at(text, at);
    if (!holds(code)) return {false};
    at += length;
  }
  return {!text.empty()};
}

bool is_letter(char32_t code) {
  return category(code)[0] == 'L';
}
bool is_decimal(char32_t code) {
  return category(code) == "Nd";
}
bool is_numeric(char32_t code) {
  return category(code)[0] == 'N';
}
bool is_letter_or_number(char32_t code) {
  return is_letter(code) || is_numeric(code);
}

Value is_ascii(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters given("isascii", arguments, {});
  const auto& text = self.text()->text;
  return {std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; })};
}

template <bool (*holds)(std::string_view)>
Value case_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("the method", arguments, {});
  interpreter.budget().spend_bytes(self.text()->text.size() * 4);
  return {holds(self.text()->text)};
}

template <bool prefix>
Value without(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("the method", arguments, {"affix"}, 1);
  std::string_view text = self.text()->text;
  const auto& affix = text_argument(given[0], "the method");
  interpreter.budget().spend_bytes(text.size());
  if (prefix && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!prefix && text.ends_with(affix)) text.remove_suffix(affix.size());
  return {std::string(text), self.text()->safe};
}

Value refused(Interpreter&, const Value&, const Arguments&) {
  throw Failure("this method of str is not supported");
}

constexpr Method kMethods[] = {
    {"capitalize", changing_method<capitalize>},
    {"casefold", refused},
    {"center", padded<'^'>},
    {"count", count_in_text},
    {"encode", refused},
    {"endswith", ends_with},
    {"expandtabs", refused},
    {"find", find_in_text<false, false>},
    {"format", format_method},
    {"format_map", format_map},
    {"index", find_in_text<false, true>},
    {"isalnum", all_characters<is_letter_or_number>},
    {"isalpha", all_characters<is_letter>},
    {"isascii", is_ascii},
    {"isdecimal", all_characters<is_decimal>},
    {"isdigit", all_characters<is_decimal>},
    {"isidentifier", refused},
    {"islower", case_method<is_lower>},
    {"isnumeric", all_characters<is_numeric>},
    {"isprintable", refused},
    {"isspace", all_characters<is_space>},
    {"istitle", refused},
    {"isupper", case_method<is_upper>},
    {"join", join_method},
    {"ljust", padded<'<'>},
    {"lower", changing_method<lower>},
    {"lstrip", stripped<true, false>},
    {"maketrans", refused},
    {"partition", partition<false>},
    {"removeprefix", without<true>},
    {"removesuffix", without<false>},
    {"replace", replace_method},
    {"rfind", find_in_text<true, false>},
    {"rindex", find_in_text<true, true>},
    {"rjust", padded<'>'>},
    {"rpartition", partition<true>},
    {"rsplit", split<true>},
    {"rstrip", stripped<false, true>},
    {"split", split<false>},
    {"splitlines", split_lines_of},
    {"startswith", starts_with},
    {"strip", stripped<true, true>},
    {"swapcase", changing_method<swap_case>},
    {"title", changing_method<title>},
    {"translate", refused},
    {"upper", changing_method<upper>},
    {"zfill", zero_filled},
};

}  // namespace

const Method* find_text_method(std::string_view name) {
  const auto* found = std::lower_bound(
      std::begin(kMethods), std::end(kMethods), name,
      [](const Method& method, std::string_view wanted) { return method.name < wanted; });
  return found != std::end(kMethods) && found->name == name ? found : nullptr;
}

}  // namespace mgpu::text::jinja
