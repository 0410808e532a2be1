#pragma once

#include <string>

#include "runtime/data/row.hpp"

namespace mgpu::data {

// A prompt and the expected answer, both lists of {"role", "content", ...}.
struct Turns {
  Json prompt = Json::array();
  Json completion = Json::array();
};

// The string in a column. Throws RowError if the column is missing or not a string.
const std::string& text_of(const Json& row, const std::string& column);

// The list of messages in a column, each an object with a role. `from` and `value` are accepted in
// place of `role` and `content`. Throws RowError for anything else, for an empty list, and for
// contents with parts that are not text.
Json messages_of(const Json& row, const std::string& column);

// ShareGPT's `conversations`, preceded by the row's `system` column if there is one. With
// `map_roles`, human and gpt become user and assistant.
Json sharegpt_messages(const Json& row, bool map_roles);

// An Alpaca row as a conversation. The input follows the instruction on its own line.
Turns alpaca_turns(const Json& row);

// The prompt of an Alpaca row in the text format that Stanford's Alpaca was trained on. The
// completion is the column `output`.
std::string alpaca_prompt(const Json& row);

// The row's `tools`, given as a list or as a string that contains one. Null if there are none.
Json tools_of(const Json& row);

// The row's `chat_template_kwargs`, or an empty object.
Json template_extra_of(const Json& row);

}  // namespace mgpu::data
