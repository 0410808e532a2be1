#include "runtime/text/jinja/format.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/text/jinja/access.hpp"
#include "runtime/text/jinja/operators.hpp"
#include "runtime/text/jinja/text.hpp"

namespace mgpu::text::jinja {

namespace {

constexpr std::string_view kDigits = "0123456789";

// Formats a text in percent style: "%s and %(name)s".
class Percent {
 public:
  Percent(const Text& text, const Value& arguments, Budget& budget)
      : source_(text.text), safe_(text.safe), arguments_(arguments), budget_(budget) {}

  Value write() {
    while (at_ < source_.size()) {
      const std::size_t percent = std::min(source_.find('%', at_), source_.size());
      out_ += source_.substr(at_, percent - at_);
      at_ = percent + 1;
      if (percent < source_.size()) conversion();
    }
    using enum Sequence::Kind;
    // Arguments that can be looked up by name may stay unused.
    const bool named = by_name_ || arguments_.dict() || arguments_.undefined() ||
                       arguments_.is(list) || arguments_.is(range);
    if (!named && taken_ < count())
      throw Failure("not all arguments converted during string formatting");
    return {std::move(out_), safe_};
  }

 private:
  char peek() const {
    if (at_ >= source_.size()) throw Failure("incomplete format");
    return source_[at_];
  }

  bool is_tuple() const { return arguments_.is(Sequence::Kind::tuple); }
  std::size_t count() const { return is_tuple() ? arguments_.sequence()->items.size() : 1; }

  Value next_argument() {
    if (taken_ >= count()) throw Failure("not enough arguments for format string");
    ++taken_;
    return is_tuple() ? arguments_.sequence()->items[taken_ - 1] : arguments_;
  }

  Value named_argument() {
    const std::size_t end = source_.find(')', at_);
    if (end == source_.npos) throw Failure("incomplete format key");
    const auto key = source_.substr(at_ + 1, end - at_ - 1);
    if (!arguments_.dict()) throw Failure("format requires a mapping");
    const Value* found = arguments_.dict()->find(key);
    if (!found) throw Failure(fmt::format("there is no '{}' to format", key));
    at_ = end + 1;
    by_name_ = true;
    return *found;
  }

  FormatSpec flags() {
    FormatSpec spec;
    bool left = false, zero = false;
    for (;; ++at_) {
      const char c = peek();
      if (c == '-')
        left = true;
      else if (c == '0')
        zero = true;
      else if (c == '#')
        spec.alternate = true;
      else if (c == '+' || (c == ' ' && spec.sign != '+'))
        spec.sign = c;
      else if (c != ' ')
        break;
    }
    spec.align = left ? '<' : zero ? '=' : '>';
    if (zero && !left) spec.fill = "0";
    return spec;
  }

  // Width or precision: digits, or a star for the next argument.
  Integer number() {
    if (peek() == '*') {
      ++at_;
      return whole_number(next_argument(), "a width that is a star");
    }
    Integer number = 0;
    for (; kDigits.find(peek()) != kDigits.npos; ++at_)
      number = std::min<Integer>(number * 10 + (source_[at_] - '0'), 1'000'001);
    return number;
  }

  void conversion() {
    if (peek() == '%') {
      out_ += source_[at_++];
      return;
    }
    std::optional<Value> value;
    if (peek() == '(') value = named_argument();
    FormatSpec spec = flags();
    const Integer width = number();
    if (width < 0) spec.align = '<';
    const Integer positive = width < 0 ? -width : width;
    if (positive > 1'000'000) throw Failure("a width in a format is too large");
    spec.width = static_cast<std::size_t>(positive);
    if (peek() == '.') {
      ++at_;
      const Integer precision = number();
      if (precision > 1000) throw Failure("a precision in a format is too large");
      spec.precision = static_cast<int>(std::max<Integer>(precision, 0));
    }
    while (std::string_view("hlL").find(peek()) != std::string_view::npos) ++at_;
    spec.type = source_[at_++];
    write_one(value ? *value : next_argument(), spec);
  }

  void write_one(const Value& value, FormatSpec spec) {
    const bool as_text = spec.type == 's' || spec.type == 'r' || spec.type == 'a';
    if (as_text) {
      if (spec.fill == "0") spec.fill = " ";
      if (spec.align == '=') spec.align = '>';
      std::string text = spec.type == 's' ? to_text(value, budget_) : represent(value, budget_);
      if (safe_ && !(value.text() && value.text()->safe)) text = escape_html(text);
      spec.type = 's';
      out_ += format_value(Value(std::move(text)), spec, budget_);
      return;
    }
    require_defined(value);
    if (spec.type == 'c' && value.text()) {
      spec.type = 's';
      out_ += format_value(value, spec, budget_);
      return;
    }
    if (std::string_view("diuoxXeEfFgGc").find(spec.type) == std::string_view::npos)
      throw Failure(fmt::format("unsupported format character '{}'", spec.type));
    const auto number = number_of(value);
    if (!number)
      throw Failure(
          fmt::format("%{} format: a number is required, not {}", spec.type, value.type_name()));
    if (std::string_view("diu").find(spec.type) != std::string_view::npos) spec.type = 'd';
    const bool whole = std::string_view("doxXc").find(spec.type) != std::string_view::npos;
    if (whole && number->real && spec.type != 'd')
      throw Failure(fmt::format("%{} format: an integer is required, not float", spec.type));
    const Integer truncated =
        number->real && whole ? checked_integer(number->fraction) : number->whole;
    out_ += format_value(whole ? Value(truncated) : Value(number->as_double()), spec, budget_);
  }

  std::string_view source_;
  bool safe_;
  const Value& arguments_;
  Budget& budget_;
  std::size_t at_ = 0, taken_ = 0;
  bool by_name_ = false;
  std::string out_;
};

// Formats a text in str.format style: "{} and {name.part[0]!r:>8}".
class Braces {
 public:
  Braces(const Text& text, const Arguments& arguments, Budget& budget)
      : safe_(text.safe), arguments_(arguments), budget_(budget) {}

  std::string write(std::string_view source, int depth) {
    if (depth > 2) throw Failure("Max string recursion exceeded");
    std::string out;
    for (std::size_t at = 0; at < source.size(); ++at) {
      const char c = source[at];
      if (c != '{' && c != '}') {
        out += c;
      } else if (at + 1 < source.size() && source[at + 1] == c && depth == 1) {
        out += c;
        ++at;
      } else if (c == '}') {
        throw Failure("Single '}' encountered in format string");
      } else {
        const std::size_t end = end_of_field(source, at);
        out += field(source.substr(at + 1, end - at - 1), depth);
        at = end;
      }
    }
    budget_.spend_bytes(out.size());
    return out;
  }

 private:
  static std::size_t end_of_field(std::string_view source, std::size_t open) {
    int depth = 0;
    for (std::size_t at = open; at < source.size(); ++at) {
      if (source[at] == '{') ++depth;
      if (source[at] == '}' && --depth == 0) return at;
    }
    throw Failure("expected '}' before end of string");
  }

  std::string field(std::string_view text, int depth) {
    std::size_t bracket = 0, end = 0;  // a colon within [..] is part of the key
    for (; end < text.size() && (bracket > 0 || (text[end] != ':' && text[end] != '!')); ++end)
      bracket = text[end] == '[' ? 1 : text[end] == ']' ? 0 : bracket;
    const Value value = look_up(text.substr(0, end));
    char conversion = 0;
    if (end < text.size() && text[end] == '!') {
      if (end + 1 >= text.size()) throw Failure("end of string while looking for conversion");
      conversion = text[end + 1];
      end += 2;
    }
    std::string spec;
    if (end < text.size()) {
      if (text[end] != ':') throw Failure("expected ':' after conversion specifier");
      spec = write(text.substr(end + 1), depth + 1);
    }
    return convert(value, conversion, spec);
  }

  std::string convert(const Value& value, char conversion, const std::string& spec) {
    Value shown = value;
    if (conversion == 'r' || conversion == 'a')
      shown = Value(represent(value, budget_));
    else if (conversion == 's')
      shown = Value(to_text(value, budget_));
    else if (conversion != 0)
      throw Failure(fmt::format("Unknown conversion specifier '{}'", conversion));
    const bool plain = !shown.text() && !number_of(shown);
    if (plain && !spec.empty() && !shown.undefined())
      throw Failure(
          fmt::format("unsupported format string passed to {}.__format__", shown.type_name()));
    const auto out = format_value(shown, parse_format_spec(spec), budget_);
    return safe_ && !(shown.text() && shown.text()->safe) ? escape_html(out) : out;
  }

  Value look_up(std::string_view name) {
    std::size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = first(name.substr(0, end));
    while (end < name.size()) {
      if (name[end] == '.') {
        const std::size_t stop = std::min(name.find_first_of(".[", end + 1), name.size());
        value = attribute_of(value, name.substr(end + 1, stop - end - 1), budget_);
        end = stop;
      } else {
        const std::size_t stop = name.find(']', end);
        if (stop == name.npos) throw Failure("Missing ']' in format string");
        value = item_of(value, index(name.substr(end + 1, stop - end - 1)), budget_);
        end = stop + 1;
        if (end < name.size() && name[end] != '.' && name[end] != '[')
          throw Failure("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  static bool is_number(std::string_view text) {
    return !text.empty() && text.size() < 10 && text.find_first_not_of(kDigits) == text.npos;
  }
  static Value index(std::string_view text) {
    return is_number(text) ? Value::integer(std::stoul(std::string(text))) : Value(text);
  }

  Value first(std::string_view name) {
    if (name.empty() || is_number(name)) {
      const auto counted = name.empty() ? Counted::by_us : Counted::by_them;
      if (counted_ != Counted::not_yet && counted_ != counted)
        throw Failure("a format cannot mix {} and {0}");
      counted_ = counted;
      const std::size_t at = name.empty() ? next_++ : std::stoul(std::string(name));
      if (at >= arguments_.positional.size())
        throw Failure(fmt::format("replacement index {} out of range", at));
      return arguments_.positional[at];
    }
    for (const auto& [known, value] : arguments_.named)
      if (known == name) return value;
    throw Failure(fmt::format("there is no '{}' to format", name));
  }

  bool safe_;
  const Arguments& arguments_;
  Budget& budget_;
  enum class Counted { not_yet, by_us, by_them };
  Counted counted_ = Counted::not_yet;
  std::size_t next_ = 0;
};

}  // namespace

Value format_percent(const Text& text, const Value& arguments, Budget& budget) {
  budget.spend_bytes(text.text.size());
  return Percent(text, arguments, budget).write();
}

Value format_braces(const Text& text, const Arguments& arguments, Budget& budget) {
  return {Braces(text, arguments, budget).write(text.text, 1), text.safe};
}

}  // namespace mgpu::text::jinja
