#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/row.hpp"

namespace mgpu::data {

// A template that is filled with the columns of a row: "{question} = {answer}". "{{" and "}}" are
// literal braces.
class ColumnTemplate {
 public:
  // Throws std::runtime_error for an unmatched brace or an empty column name.
  explicit ColumnTemplate(std::string_view source);

  bool names(std::string_view column) const;
  // Inserts strings unchanged and all other values as JSON. Throws RowError if a column is missing
  // or null.
  std::string fill(const Json& row) const;

 private:
  struct Piece {
    std::string text;
    bool is_column = false;
  };
  std::vector<Piece> pieces_;
};

}  // namespace mgpu::data
