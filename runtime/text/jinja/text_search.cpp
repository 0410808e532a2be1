#include "runtime/text/jinja/text_search.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "runtime/text/jinja/arguments.hpp"
#include "runtime/text/jinja/eval.hpp"
#include "runtime/text/jinja/operators.hpp"
#include "runtime/text/jinja/text.hpp"
#include "runtime/text/jinja/text_methods.hpp"

namespace mgpu::text::jinja {

namespace {

// The part of a text selected by start and end arguments, and where it begins.
struct Window {
  std::string_view text;
  std::size_t first_character = 0;
  bool valid = true;  // a start after the end selects nothing, not even an empty text
};

Window window(std::string_view text, const Parameters& given, Budget& budget) {
  budget.spend_bytes(text.size());
  if (!given.has(1) && !given.has(2)) return {text};
  const auto size = static_cast<Integer>(count_characters(text));
  const auto bound = [&](std::size_t index, Integer other) {
    if (!given.has(index) || given[index].is_none()) return other;
    const Integer at = whole_number(given[index], "a position");
    return std::max<Integer>(at < 0 ? at + size : at, 0);
  };
  const Integer start = bound(1, 0), end = std::min(bound(2, size), size);
  if (start > size || start > end) return {.valid = false};
  const std::size_t from = byte_of_character(text, static_cast<std::size_t>(start));
  const std::size_t to = byte_of_character(text, static_cast<std::size_t>(end));
  return {text.substr(from, to - from), static_cast<std::size_t>(start)};
}

using Fits = bool (*)(std::string_view text, std::string_view affix);

Value affixed(Interpreter& interpreter, const Value& self, const Arguments& arguments,
              const char* name, Fits fits) {
  const Parameters given(name, arguments, {"affix", "start", "end"}, 1);
  const Window part = window(self.text()->text, given, interpreter.budget());
  const auto holds = [&](const Value& affix) {
    const auto& wanted = text_argument(affix, name);
    interpreter.budget().spend(std::min(wanted.size(), part.text.size()) / 16);
    return fits(part.text, wanted) && part.valid;
  };
  if (!given[0].is(Sequence::Kind::tuple)) return {holds(given[0])};
  const auto& any = given[0].sequence()->items;
  return {std::any_of(any.begin(), any.end(), holds)};
}

// A search from the end compares the part at every position.
void spend_backwards(std::size_t text, std::size_t part, Budget& budget) {
  constexpr std::size_t kPerStep = 256;  // bytes that are compared in the time of a step
  if (part <= text) budget.spend((text - part + 1) / 16 * part / (kPerStep / 16));
}

// At most `most` splits; the parts are in order.
std::vector<std::string_view> split_at(std::string_view text, std::string_view separator,
                                       std::size_t most, bool from_right, Budget& budget) {
  if (from_right) spend_backwards(text.size(), separator.size(), budget);
  std::vector<std::string_view> parts;
  while (parts.size() < most) {
    const std::size_t at = from_right ? text.rfind(separator) : find_text(text, separator);
    if (at == text.npos) break;
    const std::size_t behind = at + separator.size();
    parts.push_back(from_right ? text.substr(behind) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(behind);
  }
  parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t start = text.npos;
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, length] = character_at(text, at);
    if (is_space(code)) {
      if (start != text.npos) parts.push_back(text.substr(start, at - start));
      start = text.npos;
    } else if (start == text.npos) {
      start = at;
    }
    at += length;
  }
  if (start != text.npos) parts.push_back(text.substr(start));
  return parts;
}

// If there are too many words, the first or last of them are joined into one part again, with the
// white space on the outer side.
std::vector<std::string_view> split_words(std::string_view text, std::size_t most,
                                          bool from_right) {
  auto parts = words(text);
  if (parts.size() <= most) return parts;
  if (from_right) {
    const auto last = parts.end() - static_cast<std::ptrdiff_t>(most) - 1;
    const auto end = static_cast<std::size_t>(last->data() + last->size() - text.data());
    parts.erase(parts.begin(), last);
    parts.front() = text.substr(0, end);
  } else {
    const auto start = static_cast<std::size_t>(parts[most].data() - text.data());
    parts[most] = text.substr(start);
    parts.resize(most + 1);
  }
  return parts;
}

Value listed(const std::vector<std::string_view>& parts, bool safe, Sequence::Kind kind,
             Budget& budget) {
  std::vector<Value> items;
  for (const auto part : parts) items.emplace_back(std::string(part), safe);
  return Value::sequence(std::move(items), kind, budget);
}

}  // namespace

const std::string& text_argument(const Value& value, std::string_view method) {
  require_defined(value);
  if (!value.text())
    throw Failure(fmt::format("{}: the argument must be str, not {}", method, value.type_name()));
  return value.text()->text;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to,
                        Integer count, Budget& budget) {
  std::string out;
  std::size_t at = 0;
  for (; count != 0; --count) {
    const std::size_t found = find_text(text, from, at);
    if (found == text.npos) break;
    out.append(text, at, found - at).append(to);
    budget.spend_bytes(found - at + to.size());
    at = found + from.size();
    if (!from.empty()) continue;
    if (at == text.size())
      return out;  // an empty text is found between all characters and at both ends
    const std::size_t length = character_at(text, at).length;
    out.append(text, at, length);
    at += length;
  }
  budget.spend_bytes(text.size() - at);
  return out.append(text, at);
}

Value starts_with(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return affixed(
      interpreter, self, arguments, "startswith",
      [](std::string_view text, std::string_view affix) { return text.starts_with(affix); });
}

Value ends_with(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return affixed(
      interpreter, self, arguments, "endswith",
      [](std::string_view text, std::string_view affix) { return text.ends_with(affix); });
}

template <bool from_right, bool must>
Value find_in_text(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("find", arguments, {"sub", "start", "end"}, 1);
  const auto& wanted = text_argument(given[0], "find");
  const Window part = window(self.text()->text, given, interpreter.budget());
  if (from_right) spend_backwards(part.text.size(), wanted.size(), interpreter.budget());
  const std::size_t at = !part.valid  ? std::string_view::npos
                         : from_right ? part.text.rfind(wanted)
                                      : find_text(part.text, wanted);
  if (at != std::string_view::npos)
    return Value::integer(part.first_character + count_characters(part.text.substr(0, at)));
  if (must) throw Failure("substring not found");
  return {static_cast<Integer>(-1)};
}
template Value find_in_text<false, false>(Interpreter&, const Value&, const Arguments&);
template Value find_in_text<false, true>(Interpreter&, const Value&, const Arguments&);
template Value find_in_text<true, false>(Interpreter&, const Value&, const Arguments&);
template Value find_in_text<true, true>(Interpreter&, const Value&, const Arguments&);

Value count_in_text(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("count", arguments, {"sub", "start", "end"}, 1);
  const auto& wanted = text_argument(given[0], "count");
  const Window part = window(self.text()->text, given, interpreter.budget());
  if (!part.valid) return Value::integer(0);
  if (wanted.empty()) return Value::integer(count_characters(part.text) + 1);
  std::size_t count = 0;
  for (std::size_t at = find_text(part.text, wanted); at != part.text.npos;
       at = find_text(part.text, wanted, at + wanted.size()))
    ++count;
  return Value::integer(count);
}

template <bool from_right>
Value split(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("split", arguments, {"sep", "maxsplit"});
  auto& budget = interpreter.budget();
  const auto* text = self.text();
  budget.spend_bytes(text->text.size());
  const Integer limit = given.has(1) ? whole_number(given[1], "maxsplit") : -1;
  const std::size_t most =
      limit < 0 ? std::numeric_limits<std::size_t>::max() : static_cast<std::size_t>(limit);
  if (!given.has(0) || given[0].is_none())
    return listed(split_words(text->text, most, from_right), text->safe, Sequence::Kind::list,
                  budget);
  const auto& separator = text_argument(given[0], "split");
  if (separator.empty()) throw Failure("empty separator");
  return listed(split_at(text->text, separator, most, from_right, budget), text->safe,
                Sequence::Kind::list, budget);
}
template Value split<false>(Interpreter&, const Value&, const Arguments&);
template Value split<true>(Interpreter&, const Value&, const Arguments&);

template <bool from_right>
Value partition(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("partition", arguments, {"sep"}, 1);
  const auto& separator = text_argument(given[0], "partition");
  if (separator.empty()) throw Failure("empty separator");
  const std::string_view text = self.text()->text;
  interpreter.budget().spend_bytes(text.size());
  const auto parts = split_at(text, separator, 1, from_right, interpreter.budget());
  const std::vector<std::string_view> three =
      parts.size() == 2 ? std::vector<std::string_view>{parts[0], separator, parts[1]}
      : from_right      ? std::vector<std::string_view>{"", "", text}
                        : std::vector<std::string_view>{text, "", ""};
  return listed(three, self.text()->safe, Sequence::Kind::tuple, interpreter.budget());
}
template Value partition<false>(Interpreter&, const Value&, const Arguments&);
template Value partition<true>(Interpreter&, const Value&, const Arguments&);

Value split_lines_of(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Parameters given("splitlines", arguments, {"keepends"});
  interpreter.budget().spend_bytes(self.text()->text.size() * 2);
  return listed(split_lines(self.text()->text, given.flag(0, false)), self.text()->safe,
                Sequence::Kind::list, interpreter.budget());
}

}  // namespace mgpu::text::jinja
