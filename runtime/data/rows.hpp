#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/file_format.hpp"
#include "runtime/data/row.hpp"

namespace mgpu::data {

// How the text of a file is divided into rows. Columnar files arrive as JSONL.
struct RowSyntax {
  FileKind kind = FileKind::jsonl;
  std::vector<std::string> columns;  // of CSV and TSV: the names in the first row

  // The end of the first row of a text: behind its line feed, or behind the `,` or `]` after it in
  // a JSON list. npos: the row does not end here; with `last`, nothing follows the text.
  std::size_t row_end(std::string_view text, bool last) const;
  // Parses a row with its end. Throws RowError.
  Json parse(std::string_view row) const;
  // Whether a row has no content and is left out.
  bool is_blank(std::string_view row) const;
  // Whether messages count the lines of the file, and not its rows.
  bool counts_lines() const;
};

// The rows of a text that begins and ends between rows, from the first to the last.
class Rows {
 public:
  Rows(const RowSyntax& syntax, std::string_view text) : syntax_(syntax), rest_(text) {}

  // Goes to the next row that is not blank; false: there is none.
  bool next();
  // How many lines, or rows of a JSON list, come before this row in the text.
  std::uint64_t offset() const { return offset_; }
  std::string_view text() const { return row_; }
  // Throws RowError.
  Json parse() const { return syntax_.parse(row_); }

 private:
  const RowSyntax& syntax_;
  std::string_view rest_, row_;
  std::uint64_t offset_ = 0, behind_ = 0;  // of this row, and of the next one
};

// The number of line feeds.
std::uint64_t line_feeds_in(std::string_view text);

}  // namespace mgpu::data
