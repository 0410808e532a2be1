#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mgpu::data {

// Rows of CSV (RFC 4180) and TSV. A field that begins with a quote ends with the next single quote;
// two quotes inside mean one, and it may contain delimiters and line feeds. Quotes elsewhere are
// ordinary characters.

// The end of the first row, behind its line feed. npos: it does not end in `text`; with `last` the
// row ends with the text.
std::size_t csv_row_end(std::string_view text, char delimiter, bool last);

// The fields of one row without its line end; nothing for an empty field without quotes. Throws
// RowError for an unclosed quote, for a character behind a closing quote, and for invalid UTF-8.
std::vector<std::optional<std::string>> csv_fields(std::string_view row, char delimiter);

// The names of columns in the first row. One without a name is called "Unnamed: N", as by pandas.
// Throws RowError if a name occurs twice.
std::vector<std::string> csv_columns(std::string_view row, char delimiter);

}  // namespace mgpu::data
