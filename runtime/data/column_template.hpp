#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/row.hpp"

namespace mgpu::data {

// A text with the columns of a row put in: "{question} = {answer}". "{{" and "}}" are braces.
class ColumnTemplate {
 public:
  // Throws std::runtime_error for a brace without its partner or an empty name.
  explicit ColumnTemplate(std::string_view source);

  bool names(std::string_view column) const;
  // Strings as they are, everything else as JSON. Throws RowError for a column that the row lacks
  // or that is null.
  std::string fill(const Json& row) const;

 private:
  struct Piece {
    std::string text;
    bool is_column = false;
  };
  std::vector<Piece> pieces_;
};

}  // namespace mgpu::data
