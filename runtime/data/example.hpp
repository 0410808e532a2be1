#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/data/column_template.hpp"
#include "runtime/data/encoder.hpp"
#include "runtime/data/format.hpp"

namespace mgpu::data {

// One row as token ids, not yet cut to max_length. labels[i] is the token to predict at the
// position of ids[i]: usually ids[i] itself, or kNoTarget.
struct Example {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> labels;
  // The end of the prompt that is not encoded as prompt, because prompt and completion together are
  // encoded differently from the prompt alone.
  std::optional<std::string> lost_prompt;
  bool unwritten_tools = false;  // the row has tools or tool calls that the template does not write
};

// Turns the rows of one file into examples. Several threads may use it at once.
class RowReader {
 public:
  // Throws std::runtime_error if the options do not fit the format. `conversational`: whether
  // prompt and completion are lists of messages.
  RowReader(Format format, RowOptions options, bool conversational, const Encoder& encoder);

  // Throws RowError, or the encoder's exception, for a row that does not fit the format.
  Example read(const Json& row) const;

  // Notes about interpretations that the user may not expect, one line each.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  Example read_tokens(const Json& row) const;
  Example read_text(std::string text) const;
  Example read_segments(const Json& row) const;
  Example read_pair(const std::string& prompt, std::string completion) const;
  Example read_chat(const Json& row, const Json& messages) const;
  Example read_chat_pair(const Json& row, const Json& prompt, const Json& completion) const;

  MarkedIds encode_chat(const Json& row, const Json& messages) const;
  bool leaves_out_tools(const Json& row, const Json& messages) const;
  void append_eos(std::string& text) const;
  void mask_prompt(const std::vector<std::int32_t>& prompt, Example& example) const;

  Format format_;
  RowOptions options_;
  bool conversational_;
  const Encoder& encoder_;
  std::string eos_;
  bool writes_tools_, writes_tool_calls_;  // by the chat template
  std::optional<ColumnTemplate> template_;
  std::vector<std::string> notes_;
};

// Whether a row is read as a conversation: this depends on the row for prompt_completion, and on
// the encoder for alpaca.
bool is_conversational(Format format, const Json& row, const Encoder& encoder);

}  // namespace mgpu::data
