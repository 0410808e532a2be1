#include "runtime/data/rows.hpp"

#include <utility>

#include <fmt/format.h>

#include "runtime/data/csv.hpp"

namespace mgpu::data {

namespace {

std::size_t line_end(std::string_view text, bool last) {
  const std::size_t end = text.find('\n');
  if (end != text.npos) return end + 1;
  return last && !text.empty() ? text.size() : text.npos;
}

// The end of a string whose quote is at `at`, or npos.
std::size_t string_end(std::string_view text, std::size_t at) {
  for (++at; (at = text.find_first_of("\"\\", at)) != text.npos; ++at) {
    if (text[at] == '"') return at;
    if (++at >= text.size()) break;
  }
  return text.npos;
}

// The end of an element of a JSON list with the `,` or `]` behind it. Brackets are only counted;
// the parser of the row checks them.
std::size_t element_end(std::string_view text, bool last) {
  std::size_t depth = 0;
  for (std::size_t at = 0; (at = text.find_first_of("\"{}[],", at)) != text.npos; ++at) {
    switch (text[at]) {
      case '"':
        at = string_end(text, at);
        if (at == text.npos) return last && !text.empty() ? text.size() : text.npos;
        break;
      case '{':
      case '[':
        ++depth;
        break;
      case ',':
        if (depth == 0) return at + 1;
        break;
      default:
        if (depth == 0) return at + 1;
        --depth;
    }
  }
  return last && !text.empty() ? text.size() : text.npos;
}

char delimiter_of(FileKind kind) {
  return kind == FileKind::tsv ? '\t' : ',';
}

bool is_table(FileKind kind) {
  return kind == FileKind::csv || kind == FileKind::tsv;
}

std::string_view without_line_end(std::string_view line) {
  for (const char c : {'\n', '\r'})
    if (line.ends_with(c)) line.remove_suffix(1);
  return line;
}

Json parse_text(std::string_view line) {
  for (std::string_view rest = line; !rest.empty();) {
    const std::size_t length = character_length(rest);
    if (length == 0) throw RowError("invalid UTF-8");
    rest.remove_prefix(length);
  }
  return Json{{"text", std::string(line)}};
}

Json parse_table_row(const RowSyntax& syntax, std::string_view row) {
  auto fields = csv_fields(row, delimiter_of(syntax.kind));
  if (fields.size() != syntax.columns.size())
    throw RowError(fmt::format("the row has {} field{}, but the first row names {} columns",
                               fields.size(), fields.size() == 1 ? "" : "s",
                               syntax.columns.size()));
  Json out = Json::object();
  auto& members = out.get_ref<Json::object_t&>();
  for (std::size_t i = 0; i < fields.size(); ++i)
    members.emplace_back(syntax.columns[i],
                         fields[i] ? Json(std::move(*fields[i])) : Json(nullptr));
  return out;
}

}  // namespace

std::size_t RowSyntax::row_end(std::string_view text, bool last) const {
  if (kind == FileKind::json_array) return element_end(text, last);
  if (is_table(kind)) return csv_row_end(text, delimiter_of(kind), last);
  return line_end(text, last);
}

Json RowSyntax::parse(std::string_view row) const {
  if (kind == FileKind::json_array) return parse_row(row.substr(0, row.size() - 1));
  if (kind == FileKind::text) return parse_text(without_line_end(row));
  if (is_table(kind)) return parse_table_row(*this, without_line_end(row));
  return parse_row(row);
}

bool RowSyntax::is_blank(std::string_view row) const {
  if (kind == FileKind::json_array && !row.empty()) row.remove_suffix(1);
  // A line of tabs is a row of empty fields.
  if (kind == FileKind::tsv) return without_line_end(row).empty();
  return row.find_first_not_of(" \t\r\n") == row.npos;
}

bool RowSyntax::counts_lines() const {
  return is_table(kind) || has_lines_as_rows(kind);
}

bool Rows::next() {
  while (!rest_.empty()) {
    row_ = rest_.substr(0, syntax_.row_end(rest_, true));
    rest_.remove_prefix(row_.size());
    offset_ = behind_;
    behind_ += syntax_.counts_lines() ? line_feeds_in(row_) : 1;
    if (!syntax_.is_blank(row_)) return true;
  }
  return false;
}

std::uint64_t line_feeds_in(std::string_view text) {
  std::uint64_t count = 0;
  for (std::size_t at = text.find('\n'); at != text.npos; at = text.find('\n', at + 1)) ++count;
  return count;
}

}  // namespace mgpu::data
