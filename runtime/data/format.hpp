#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/data/row.hpp"

namespace mgpu::data {

// What the rows of a file are. docs/data.md shows a row of each.
enum class Format {
  tokens,             // input_ids, and labels or masks
  columns,            // any columns, put together by a prompt_template
  prompt_completion,  // prompt and completion, both text or both lists of messages
  messages,           // messages: a list of {"role", "content"}
  sharegpt,           // conversations: a list of {"from", "value"}
  text,               // one column of text
  alpaca,             // instruction, input, output, system, history
};

// How rows are read. Everything in it changes what comes out, so all of it is in the cache's key.
struct RowOptions {
  std::string format = "auto";
  std::string text_field = "text";
  std::string prompt_template;               // "{column}" placeholders; empty: none
  std::optional<bool> completion_only_loss;  // none: where there is a completion
  bool assistant_only_loss = false;
  bool map_sharegpt_roles = true;  // human is user, gpt is assistant; TRL leaves them as they are
  std::int64_t vocabulary = 0;     // ids in rows are below it; 0: not checked
};

std::string_view name_of(Format format);

// The format that the options name, or else the one that the columns of a file's first row fit.
// Throws std::runtime_error that names those columns and the formats there are.
Format format_of(const Json& first_row, const RowOptions& options);

}  // namespace mgpu::data
