#include "runtime/data/column_template.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"

namespace mgpu::data {

ColumnTemplate::ColumnTemplate(std::string_view source) {
  std::string text;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const char c = source[i];
    if (c != '{' && c != '}') {
      text += c;
      continue;
    }
    if (i + 1 < source.size() && source[i + 1] == c) {
      text += c;
      ++i;
      continue;
    }
    const std::size_t end = c == '{' ? source.find_first_of("{}", i + 1) : source.npos;
    if (end == source.npos || source[end] != '}' || end == i + 1)
      throw rendezvous::InputError(
          fmt::format("prompt_template: the brace at byte {} is not part of a {{column}}; write "
                      "{{{{ or }}}} for a literal brace",
                      i));
    pieces_.push_back({std::move(text), false});
    pieces_.push_back({std::string(source.substr(i + 1, end - i - 1)), true});
    text.clear();
    i = end;
  }
  pieces_.push_back({std::move(text), false});
}

bool ColumnTemplate::names(std::string_view column) const {
  return std::any_of(pieces_.begin(), pieces_.end(),
                     [&](const Piece& p) { return p.is_column && p.text == column; });
}

std::string ColumnTemplate::fill(const Json& row) const {
  std::string out;
  for (const Piece& piece : pieces_) {
    if (!piece.is_column) {
      out += piece.text;
      continue;
    }
    const auto found = row.find(piece.text);
    if (found == row.end() || found->is_null())
      throw RowError(fmt::format("the column \"{}\" of the prompt_template is {}",
                                 printable(piece.text), found == row.end() ? "missing" : "null"));
    out += found->is_string() ? found->get_ref<const std::string&>() : found->dump();
  }
  return out;
}

}  // namespace mgpu::data
