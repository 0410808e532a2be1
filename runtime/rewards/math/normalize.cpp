#include "runtime/rewards/math/normalize.hpp"

#include <fmt/format.h>

#include <array>
#include <initializer_list>
#include <utility>

#include "runtime/rewards/math/character_class.hpp"

namespace mgpu::rewards::math {
namespace {

struct Spelled {
  const char* sign;
  const char* command;
};

// Characters that people and models write instead of commands.
constexpr std::array kSigns = {
    Spelled{"\u2212", "-"},        Spelled{"\u00d7", "\\times "},    Spelled{"\u00b7", "\\cdot "},
    Spelled{"\u00f7", "\\div "},   Spelled{"\u03c0", "\\pi "},       Spelled{"\u221e", "\\infty "},
    Spelled{"\u2264", "\\le "},    Spelled{"\u2265", "\\ge "},       Spelled{"\u2260", "\\ne "},
    Spelled{"\u00b0", "^\\circ "}, Spelled{"\u222a", "\\cup "},      Spelled{"\u2208", "\\in "},
    Spelled{"\u03b8", "\\theta "}, Spelled{"\u03b1", "\\alpha "},    Spelled{"\u03b2", "\\beta "},
    Spelled{"\u00b1", "\\pm "},    Spelled{"\u2205", "\\emptyset "}, Spelled{"\u00b2", "^{2}"},
    Spelled{"\u00b3", "^{3}"},
};

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (text.find(from) == text.npos) return;
  std::string out;
  std::size_t begin = 0;
  for (std::size_t at; (at = text.find(from, begin)) != text.npos; begin = at + from.size())
    out.append(text, begin, at - begin).append(to);
  text = out.append(text, begin);
}

// A command is a name of letters: \left is none in \leftarrow.
void replace_command(std::string& text, std::string_view from, std::string_view to) {
  std::string out;
  std::size_t begin = 0;
  std::size_t at = 0;
  while ((at = text.find(from, at)) != text.npos) {
    const auto end = at + from.size();
    if (end < text.size() && is_letter(text[end])) {
      at = end;
      continue;
    }
    out.append(text, begin, at - begin).append(to);
    begin = at = end;
  }
  if (begin > 0) text = out.append(text, begin);
}

// A separate word, and the commas and blanks before it.
void replace_word(std::string& text, std::string_view word, std::string_view to) {
  std::size_t at = 0;
  while ((at = text.find(word, at)) != text.npos) {
    const auto end = at + word.size();
    const bool alone = (at == 0 || (!is_letter(text[at - 1]) && text[at - 1] != '\\')) &&
                       (end == text.size() || !is_letter(text[end]));
    if (!alone) {
      at = end;
      continue;
    }
    std::size_t begin = at;
    while (begin > 0 && text[begin - 1] == ' ') --begin;
    if (to == "," && begin > 0 && text[begin - 1] == ',') --begin;
    text.replace(begin, end - begin, to);
    at = begin + to.size();
  }
}

// `\text{ and }` is and, `\text{percent}` is percent.
void open_text(std::string& text, std::string_view word) {
  std::size_t at = 0;
  while ((at = text.find("\\text{", at)) != text.npos) {
    const auto begin = at + 6;
    const auto end = text.find('}', begin);
    if (end == text.npos) return;
    std::string_view inside = std::string_view(text).substr(begin, end - begin);
    while (!inside.empty() && (inside.front() == ' ' || inside.front() == ','))
      inside.remove_prefix(1);
    while (!inside.empty() && (inside.back() == ' ' || inside.back() == ','))
      inside.remove_suffix(1);
    if (inside == word) {
      text.replace(at, end + 1 - at, fmt::format(" {} ", word));
    } else {
      at = end;
    }
  }
}

void drop_quotes(std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i)
    if ((text[i] != '"' && text[i] != '\'') || (i > 0 && text[i - 1] == '\\')) out += text[i];
  text = std::move(out);
}

// `\\,` and the like are blanks, `\\!` is nothing; `\\\\ ` is the end of a row.
void plain_blanks(std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
    if (next == '\\') {
      out += "\\\\";
      ++i;
    } else if (next == ' ' || next == ',' || next == ';' || next == ':') {
      out += ' ';
      ++i;
    } else if (next == '!' || next == '$') {
      ++i;
    } else if (text[i] != '$') {
      out += text[i] == '~' ? ' ' : text[i];
    }
  }
  text = std::move(out);
}

void commands_for_signs(std::string& text) {
  for (const auto& [sign, command] : kSigns) replace_all(text, sign, command);
}

void single_backslashes(std::string& text) {
  if (text.find("matrix") != text.npos || text.find("array") != text.npos) return;
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 2 < text.size() && text[i + 1] == '\\' && is_letter(text[i + 2]))
      continue;
    out += text[i];
  }
  text = std::move(out);
}

}  // namespace

std::string normalized(std::string_view latex) {
  std::string text(latex);
  for (const char c : {'\n', '\t', '\r'}) replace_all(text, std::string(1, c), " ");
  single_backslashes(text);
  commands_for_signs(text);
  replace_all(text, "\\mathrm{th}", "");
  for (const auto* size : {"\\left", "\\right", "\\mleft", "\\mright", "\\bigl", "\\bigr", "\\Bigl",
                           "\\Bigr", "\\big", "\\Big", "\\displaystyle", "\\textstyle"})
    replace_command(text, size, "");
  for (const auto* font : {"\\mathrm", "\\mathit", "\\mathbf", "\\textnormal", "\\textbf",
                           "\\textit", "\\textrm", "\\mbox", "\\mathsf", "\\mathtt"})
    replace_command(text, font, "\\text");
  replace_all(text, "\\text {", "\\text{");
  for (const auto* fraction : {"\\dfrac", "\\tfrac", "\\cfrac"})
    replace_command(text, fraction, "\\frac");
  for (const auto* choose : {"\\dbinom", "\\tbinom"}) replace_command(text, choose, "\\binom");
  for (const auto* nothing : {"\\text{}", "\\text{ }"}) replace_all(text, nothing, "");
  drop_quotes(text);
  replace_all(text, "{,}", ",");
  plain_blanks(text);
  for (const auto* blank : {"\\quad", "\\qquad"}) replace_command(text, blank, " ");
  for (const auto* word : {"and", "or", "percent", "percentage", "pct"}) open_text(text, word);
  for (const auto& [word, to] :
       std::initializer_list<std::pair<const char*, const char*>>{{"and", ","},
                                                                  {"or", ","},
                                                                  {"percent", "\\%"},
                                                                  {"percentage", "\\%"},
                                                                  {"pct", "\\%"},
                                                                  {"infinity", "\\infty "},
                                                                  {"inf", "\\infty "}})
    replace_word(text, word, to);
  for (const auto* dots : {"\\ldots", "\\dots", "\\cdots"}) {
    replace_all(text, fmt::format(",{}", dots), " ");
    replace_command(text, dots, " ");
  }
  return without_units(std::move(text));
}

}  // namespace mgpu::rewards::math
