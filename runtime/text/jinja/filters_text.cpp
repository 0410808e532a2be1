#include <algorithm>

#include <fmt/format.h>

#include "runtime/text/jinja/arguments.hpp"
#include "runtime/text/jinja/eval.hpp"
#include "runtime/text/jinja/format.hpp"
#include "runtime/text/jinja/library.hpp"
#include "runtime/text/jinja/numbers.hpp"
#include "runtime/text/jinja/operators.hpp"
#include "runtime/text/jinja/text.hpp"
#include "runtime/text/jinja/text_methods.hpp"

namespace mgpu::text::jinja {

namespace {

// The value as text; a safe text stays safe.
Text soft(Interpreter& interpreter, const Value& value) {
  return {to_text(value, interpreter.budget()), value.text() && value.text()->safe};
}

template <std::string (*change)(std::string_view)>
Value changing_filter(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("the filter", arguments, {});
  const Text text = soft(interpreter, self);
  interpreter.budget().spend_bytes(text.text.size() * 4);
  return {change(text.text), text.safe};
}

// The rule of the filter `title`: a word begins after white space, hyphens and opening brackets.
std::string title_words(std::string_view text) {
  const auto separates = [](char32_t code) {
    return is_space(code) ||
           (code < 0x80 &&
            std::string_view("-({[<").find(static_cast<char>(code)) != std::string_view::npos);
  };
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const bool between = separates(character_at(text, at).code);
    while (at < text.size() && separates(character_at(text, at).code) == between)
      at += character_at(text, at).length;
    const auto part = text.substr(start, at - start);
    const std::size_t first = character_at(part, 0).length;
    out += upper(part.substr(0, first)) + lower(part.substr(first));
  }
  return out;
}

Value trim(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("trim", arguments, {"chars"});
  const Text text = soft(interpreter, self);
  if (!given.has(0) || given[0].is_none()) return {std::string(strip_space(text.text)), text.safe};
  if (!given[0].text()) throw Failure("strip arg must be None or str");
  return {std::string(strip(text.text, given[0].text()->text, true, true)), text.safe};
}

Value replace_filter(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("replace", arguments, {"old", "new", "count"}, 2);
  auto& budget = interpreter.budget();
  const bool all = !given.has(2) || given[2].is_none();
  return {replace_all(to_text(self, budget), to_text(given[0], budget), to_text(given[1], budget),
                      all ? -1 : whole_number(given[2], "count"), budget)};
}

Value string(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("string", arguments, {});
  Text text = soft(interpreter, self);
  return {std::move(text.text), text.safe};
}

Value safe(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("safe", arguments, {});
  return {to_text(self, interpreter.budget()), true};
}

Value escape(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("escape", arguments, {});
  const Text text = soft(interpreter, self);
  interpreter.budget().spend_bytes(text.text.size() * 5);
  return {text.safe ? text.text : escape_html(text.text), true};
}

Value force_escape(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("forceescape", arguments, {});
  return {escape_html(to_text(self, interpreter.budget())), true};
}

Value indent(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("indent", arguments, {"width", "first", "blank"});
  require_defined(self);
  if (!self.text())
    throw Failure(fmt::format("indent: a text is needed, not {}", self.type_name()));
  const Text text = soft(interpreter, self);
  std::string indention(4, ' ');
  if (given.has(0) && given[0].text())
    indention = given[0].text()->text;
  else if (given.has(0))
    indention = std::string(static_cast<std::size_t>(std::clamp<Integer>(
                                whole_number(given[0], "indent's width"), 0, 100'000)),
                            ' ');
  const std::string whole = text.text + "\n";
  const auto lines = split_lines(whole, false);
  std::string out = given.flag(1, false) ? indention : "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    interpreter.budget().spend_bytes(lines[i].size() + indention.size());
    if (i > 0) out += '\n';
    if (i > 0 && (!lines[i].empty() || given.flag(2, false))) out += indention;
    out += lines[i];
  }
  return {std::move(out), text.safe};
}

Value format_filter(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  auto& budget = interpreter.budget();
  if (!arguments.named.empty() && !arguments.positional.empty())
    throw Failure("can't handle positional and keyword arguments at the same time");
  const Text text = soft(interpreter, self);
  if (arguments.named.empty())
    return format_percent(
        text, Value::sequence(arguments.positional, Sequence::Kind::tuple, budget), budget);
  Dict named;
  for (const auto& [name, value] : arguments.named) named.set(Value(name), value, budget);
  return format_percent(text, Value(std::move(named)), budget);
}

Value center(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("center", arguments, {"width"});
  const Value width = given.at_or(0, Value::integer(80));
  const Text text = soft(interpreter, self);
  const Value shown(text.text, text.safe);
  return interpreter.call(*own_attribute(shown, "center"), {.positional = {width}});
}

Value word_count(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("wordcount", arguments, {});
  const std::string text = to_text(self, interpreter.budget());
  std::size_t count = 0;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, length] = character_at(text, at);
    const char kind = category(code)[0];
    const bool letter = kind == 'L' || kind == 'N' || code == '_';
    count += letter && !in_word;
    in_word = letter;
    at += length;
  }
  return Value::integer(count);
}

Value url_encode(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("urlencode", arguments, {});
  if (self.dict() || self.sequence())
    throw Failure("the filter urlencode is supported for texts only");
  std::string out;
  for (const char c : to_text(self, interpreter.budget())) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (plain || std::string_view("_.-~/").find(c) != std::string_view::npos)
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return {std::move(out)};
}

std::optional<std::string> json_indent(const Value& value) {
  if (value.is_none()) return std::nullopt;
  if (value.text()) return value.text()->text;
  const Integer width = whole_number(value, "tojson's indent");
  if (width > 1000) throw Failure("tojson's indent is too large");
  return std::string(static_cast<std::size_t>(std::max<Integer>(width, 0)), ' ');
}

Value to_json_filter(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("tojson", arguments,
                         {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{.ensure_ascii = given.flag(0, false), .sort_keys = given.flag(3, false)};
  if (given.has(1)) style.indent = json_indent(given[1]);
  if (style.indent) style.item_separator = ",";
  if (given.has(2) && !given[2].is_none()) {
    const auto both = elements(given[2], interpreter.budget());
    if (both->size() != 2 || !both->at(0).text() || !both->at(1).text())
      throw Failure("tojson's separators are two texts");
    style.item_separator = both->at(0).text()->text;
    style.key_separator = both->at(1).text()->text;
  }
  return {to_json(self, style, interpreter.budget())};
}

constexpr Entry kTextFilters[] = {
    {"capitalize", changing_filter<capitalize>},
    {"center", center},
    {"e", escape},
    {"escape", escape},
    {"float", to_real},
    {"forceescape", force_escape},
    {"format", format_filter},
    {"indent", indent},
    {"int", to_whole},
    {"lower", changing_filter<lower>},
    {"replace", replace_filter},
    {"round", rounded},
    {"abs", magnitude},
    {"safe", safe},
    {"string", string},
    {"title", changing_filter<title_words>},
    {"tojson", to_json_filter},
    {"trim", trim},
    {"upper", changing_filter<upper>},
    {"urlencode", url_encode},
    {"wordcount", word_count},
};

}  // namespace

const Entry* find_text_filter(std::string_view name) {
  return find_entry(kTextFilters, name);
}

const Entry* find_filter(std::string_view name) {
  const Entry* found = find_text_filter(name);
  return found ? found : find_list_filter(name);
}

}  // namespace mgpu::text::jinja
