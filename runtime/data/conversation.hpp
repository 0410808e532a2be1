#pragma once

#include <string>

#include "runtime/data/row.hpp"

namespace mgpu::data {

// A prompt and what the model is to answer, both lists of {"role", "content", ...}.
struct Turns {
  Json prompt = Json::array();
  Json completion = Json::array();
};

// The string in a column. Throws RowError where it is missing or something else.
const std::string& text_of(const Json& row, const std::string& column);

// The list of messages in a column, every one an object with a role. `from` and `value` are read
// as `role` and `content`. Throws RowError for anything else, and for an empty list.
Json messages_of(const Json& row, const std::string& column);

// ShareGPT's `conversations`, with a `system` column put before them. `map_roles`: human and gpt
// become user and assistant.
Json sharegpt_messages(const Json& row, bool map_roles);

// An Alpaca row as a conversation; input follows the instruction on a line of its own.
Turns alpaca_turns(const Json& row);

// An Alpaca row as the text that Stanford's Alpaca was trained on; the completion is `output`.
std::string alpaca_prompt(const Json& row);

// The row's `tools`: a list, or a string that holds one; null where there are none.
Json tools_of(const Json& row);

// The row's `chat_template_kwargs`; an empty object where there are none.
Json template_extra_of(const Json& row);

}  // namespace mgpu::data
