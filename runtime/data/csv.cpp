#include "runtime/data/csv.hpp"

#include <array>
#include <unordered_set>

#include <fmt/format.h>

#include "runtime/data/row.hpp"

namespace mgpu::data {

namespace {

// The quote that closes the field which begins with the quote at `at`; npos: there is none.
std::size_t closing_quote(std::string_view text, std::size_t at) {
  for (++at; (at = text.find('"', at)) != text.npos; at += 2)
    if (at + 1 >= text.size() || text[at + 1] != '"') return at;
  return text.npos;
}

std::string unquoted(std::string_view field) {
  std::string out;
  for (std::size_t i = 0; i < field.size(); ++i) {
    out += field[i];
    if (field[i] == '"') ++i;  // the second of two
  }
  return out;
}

void check_utf8(std::string_view row) {
  while (!row.empty()) {
    const std::size_t length = character_length(row);
    if (length == 0)
      throw RowError(fmt::format("invalid UTF-8, near {}", printable(row.substr(0, 30))));
    row.remove_prefix(length);
  }
}

}  // namespace

std::size_t csv_row_end(std::string_view text, char delimiter, bool last) {
  if (text.empty()) return text.npos;
  const std::array<char, 2> stops{delimiter, '\n'};
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') {
      at = closing_quote(text, at);
      // A quote at the end of the text may be the first of two.
      if (at == text.npos || (at + 1 == text.size() && !last)) break;
    }
    at = text.find_first_of({stops.data(), stops.size()}, at);
    if (at == text.npos) break;
    if (text[at] == '\n') return at + 1;
  }
  return last ? text.size() : text.npos;
}

std::vector<std::optional<std::string>> csv_fields(std::string_view row, char delimiter) {
  check_utf8(row);
  std::vector<std::optional<std::string>> fields;
  while (true) {
    if (row.starts_with('"')) {
      const std::size_t end = closing_quote(row, 0);
      if (end == row.npos)
        throw RowError(fmt::format("the quote of field {} is not closed", fields.size() + 1));
      fields.emplace_back(unquoted(row.substr(1, end - 1)));
      row.remove_prefix(end + 1);
      if (!row.empty() && row.front() != delimiter)
        throw RowError(fmt::format(
            "field {} has {} behind its closing quote; write a quote inside a field as \"\"",
            fields.size(), printable(row.substr(0, 20))));
    } else {
      const std::string_view field = row.substr(0, row.find(delimiter));
      fields.emplace_back(field.empty() ? std::nullopt : std::optional<std::string>(field));
      row.remove_prefix(field.size());
    }
    if (row.empty()) return fields;
    row.remove_prefix(1);
  }
}

std::vector<std::string> csv_columns(std::string_view row, char delimiter) {
  std::vector<std::string> names;
  std::unordered_set<std::string> known;
  for (auto& field : csv_fields(row, delimiter)) {
    std::string name =
        field && !field->empty() ? std::move(*field) : fmt::format("Unnamed: {}", names.size());
    if (!known.insert(name).second)
      throw RowError(fmt::format("the column \"{}\" occurs twice", printable(name)));
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace mgpu::data
