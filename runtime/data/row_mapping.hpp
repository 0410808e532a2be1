#pragma once

#include <map>
#include <string>

#include "runtime/data/row.hpp"

namespace mgpu::data {

// How a dataset names what the row formats name: its columns, the fields of its messages and its
// roles.
struct RowMapping {
  std::map<std::string, std::string> columns;         // our name: the dataset's
  std::map<std::string, std::string> message_fields;  // role, content, ...: the dataset's
  std::map<std::string, std::string> roles;           // the dataset's: ours
  // A prompt of the columns instruction and input, in which {instruction} and {input} stand for
  // them; rows without input have the second text. Empty: none. The completion is the column
  // output.
  std::string prompt_format, no_input_format;
  std::string system_format = "{system}";  // before the prompt, if there is a system text
  std::string system_text;                 // of rows without a column system

  bool is_empty() const;
  std::string key() const;  // different for mappings that differ
  // Whether the mapping combines columns to prompt and completion.
  bool makes_prompts() const { return !prompt_format.empty(); }

  friend bool operator==(const RowMapping&, const RowMapping&) = default;
};

// The row with our names. Throws RowError if a column that is needed is missing.
Json mapped_row(const RowMapping& mapping, Json row);

// The names of a row's columns, for a message.
std::string column_names(const Json& row);

}  // namespace mgpu::data
