#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "runtime/text/jinja/operators.hpp"
#include "runtime/text/jinja/text.hpp"

namespace mgpu::text::jinja {

namespace {

void append_code_escape(std::string& out, char32_t code) {
  const auto number = static_cast<std::uint32_t>(code);
  if (number < 0x100)
    out += fmt::format("\\x{:02x}", number);
  else if (number < 0x10000)
    out += fmt::format("\\u{:04x}", number);
  else
    out += fmt::format("\\U{:08x}", number);
}

std::string represent_text(std::string_view text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, length] = character_at(text, at);
    if (code == static_cast<unsigned char>(quote) || code == '\\')
      (out += '\\') += static_cast<char>(code);
    else if (code == '\n')
      out += "\\n";
    else if (code == '\r')
      out += "\\r";
    else if (code == '\t')
      out += "\\t";
    else if (!is_printable(code))
      append_code_escape(out, code);
    else
      out += text.substr(at, length);
    at += length;
  }
  return out += quote;
}

void append_json_text(std::string& out, std::string_view text, bool ascii) {
  const auto escape = [&out](std::uint32_t unit) { out += fmt::format("\\u{:04x}", unit); };
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, length] = character_at(text, at);
    static constexpr std::string_view kPlain = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
    const auto known = code < 0x80 ? kPlain.find(static_cast<char>(code)) : kPlain.npos;
    if (known != kPlain.npos) {
      (out += '\\') += kLetters[known];
    } else if (code < 0x20 || (ascii && code >= 0x7F && code < 0x10000)) {
      escape(code);
    } else if (ascii && code >= 0x10000) {
      escape(0xD800 + ((code - 0x10000) >> 10));
      escape(0xDC00 + ((code - 0x10000) & 0x3FF));
    } else {
      out += text.substr(at, length);
    }
    at += length;
  }
  out += '"';
}

// Writes as Python's json module does.
class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  void write(const Value& value) {
    budget_.spend(1);
    if (const auto* text = value.text()) {
      budget_.spend_bytes(text->text.size());
      append_json_text(out, text->text, style_.ensure_ascii);
    } else if (value.is(Sequence::Kind::list) || value.is(Sequence::Kind::tuple)) {
      write_list(value.sequence()->items);
    } else if (const auto* dict = value.dict()) {
      write_dict(*dict);
    } else {
      out += scalar(value);
    }
  }

  std::string out;

 private:
  std::string scalar(const Value& value) const {
    if (value.is_none()) return "null";
    if (const auto* held = value.get<bool>()) return *held ? "true" : "false";
    if (const auto* held = value.get<Integer>()) return fmt::format("{}", *held);
    const auto* real = value.get<double>();
    if (!real)
      throw Failure(fmt::format("Object of type {} is not JSON serializable", value.type_name()));
    if (std::isnan(*real)) return "NaN";
    if (std::isinf(*real)) return *real > 0 ? "Infinity" : "-Infinity";
    return represent(*real);
  }

  void new_line() {
    if (!style_.indent) return;
    budget_.spend_bytes(style_.indent->size() * static_cast<std::size_t>(level_));
    out += '\n';
    for (int i = 0; i < level_; ++i) out += *style_.indent;
  }

  void write_list(const std::vector<Value>& items) {
    out += '[';
    ++level_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      new_line();
      write(items[i]);
    }
    --level_;
    if (!items.empty()) new_line();
    out += ']';
  }

  void write_dict(const Dict& dict) {
    auto entries = dict.entries();
    budget_.spend_elements(entries.size());
    if (style_.sort_keys)
      std::stable_sort(entries.begin(), entries.end(), [this](const auto& a, const auto& b) {
        return compare(a.first, b.first, "<", budget_) < 0;
      });
    out += '{';
    ++level_;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      new_line();
      const auto& key = entries[i].first;
      if (!key.text() && (key.sequence() || key.undefined()))
        throw Failure(
            fmt::format("keys must be str, int, float, bool or None, not {}", key.type_name()));
      append_json_text(out, key.text() ? key.text()->text : scalar(key), style_.ensure_ascii);
      out += style_.key_separator;
      write(entries[i].second);
    }
    --level_;
    if (!entries.empty()) new_line();
    out += '}';
  }

  const JsonStyle& style_;
  Budget& budget_;
  int level_ = 0;
};

std::string represent_items(const std::vector<Value>& items, Budget& budget) {
  std::string out;
  for (std::size_t i = 0; i < items.size(); ++i)
    out.append(i > 0 ? ", " : "").append(represent(items[i], budget));
  return out;
}

std::string represent_sequence(const Sequence& sequence, const char* name, Budget& budget) {
  if (sequence.kind == Sequence::Kind::range) {
    const auto& [start, stop, step] = sequence.range;
    return step == 1 ? fmt::format("range({}, {})", start, stop)
                     : fmt::format("range({}, {}, {})", start, stop, step);
  }
  if (sequence.kind == Sequence::Kind::generator)
    throw Failure("a generator has no text; turn it into a list with |list or |join");
  std::string inside = represent_items(sequence.items, budget);
  budget.spend_bytes(inside.size());
  if (sequence.kind == Sequence::Kind::list) return "[" + inside + "]";
  if (sequence.kind != Sequence::Kind::tuple) return fmt::format("{}([{}])", name, inside);
  return "(" + inside + (sequence.items.size() == 1 ? ",)" : ")");
}

std::string represent_dict(const Dict& dict, Budget& budget) {
  std::string out = "{";
  for (const auto& [key, value] : dict.entries()) {
    if (out.size() > 1) out += ", ";
    out += represent(key, budget) + ": " + represent(value, budget);
  }
  budget.spend_bytes(out.size());
  return out + "}";
}

}  // namespace

std::string represent(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == text.npos) text += ".0";
  return text;
}

std::string represent(const Value& value, Budget& budget) {
  budget.spend(1);
  if (value.undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (const auto* held = value.get<bool>()) return *held ? "True" : "False";
  if (const auto* held = value.get<Integer>()) return fmt::format("{}", *held);
  if (const auto* held = value.get<double>()) return represent(*held);
  if (const auto* text = value.text()) {
    budget.spend_bytes(text->text.size());
    const auto shown = represent_text(text->text);
    return text->safe ? "Markup(" + shown + ")" : shown;
  }
  if (const auto* dict = value.dict()) return represent_dict(*dict, budget);
  if (const auto* sequence = value.sequence())
    return represent_sequence(*sequence, value.type_name(), budget);
  throw Failure(fmt::format("a {} has no text", value.type_name()));
}

std::string to_text(const Value& value, Budget& budget) {
  if (value.undefined()) return {};
  if (const auto* text = value.text()) {
    budget.spend_bytes(text->text.size());
    return text->text;
  }
  return represent(value, budget);
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  JsonWriter writer(style, budget);
  writer.write(value);
  return std::move(writer.out);
}

}  // namespace mgpu::text::jinja
