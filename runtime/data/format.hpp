#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/data/row.hpp"
#include "runtime/data/row_mapping.hpp"

namespace mgpu::data {

// The row format of a file. docs/data.md shows a row of each format.
enum class Format {
  tokens,             // input_ids with labels or masks
  columns,            // any columns, combined by a prompt_template
  prompt_completion,  // prompt and completion, both strings or both lists of messages
  messages,           // messages: a list of {"role", "content"}
  sharegpt,           // conversations: a list of {"from", "value"}
  text,               // one text column
  segments,           // segments: a list of {"text", "label"}, without a template
  alpaca,             // instruction, input, output, system, history
};

// How rows are read. Every option affects the resulting tokens, so all of them are part of the
// cache key.
struct RowOptions {
  std::string format = "auto";
  std::string text_field = "text";
  std::string prompt_template;               // "{column}" placeholders; empty: none
  std::optional<bool> completion_only_loss;  // none: on for rows with a completion
  bool assistant_only_loss = false;
  bool map_sharegpt_roles = true;  // human becomes user, gpt becomes assistant; TRL keeps them
  std::int64_t vocabulary = 0;     // ids in rows must be below this; 0: not checked
  RowMapping mapping = {};         // applied to every row first
};

std::string_view name_of(Format format);

// The format that the options name, or else the one that matches the columns of the file's first
// row, with our names. If none matches, throws std::runtime_error that lists the columns and the
// available formats.
Format format_of(const Json& first_row, const RowOptions& options);

}  // namespace mgpu::data
