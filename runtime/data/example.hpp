#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/data/column_template.hpp"
#include "runtime/data/encoder.hpp"
#include "runtime/data/format.hpp"

namespace mgpu::data {

// One row as the model sees it, whole: cutting to max_length comes later. labels[i] is what the
// model is to say at the place of ids[i]: ids[i] itself as a rule, or kNoTarget.
struct Example {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> labels;
  // The end of the prompt that the model does not see, because prompt and completion together are
  // encoded otherwise than the prompt alone.
  std::optional<std::string> lost_prompt;
};

// Turns the rows of one file into examples. May be used by several threads at once.
class RowReader {
 public:
  // Throws std::runtime_error where the options ask for what the format cannot give.
  // `conversational`: whether a prompt and completion are lists of messages.
  RowReader(Format format, RowOptions options, bool conversational, const Encoder& encoder);

  // Throws RowError, or what the encoder throws, for a row that does not hold what the format says.
  Example read(const Json& row) const;

  // What was understood otherwise than a person may expect, a line each.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  Example read_tokens(const Json& row) const;
  Example read_text(std::string text) const;
  Example read_pair(const std::string& prompt, std::string completion) const;
  Example read_chat(const Json& row, const Json& messages) const;
  Example read_chat_pair(const Json& row, const Json& prompt, const Json& completion) const;

  MarkedIds encode_chat(const Json& row, const Json& messages) const;
  void end_text(std::string& text) const;
  void mask_prompt(const std::vector<std::int32_t>& prompt, Example& example) const;

  Format format_;
  RowOptions options_;
  bool conversational_;
  const Encoder& encoder_;
  std::string eos_;
  std::optional<ColumnTemplate> template_;
  std::vector<std::string> notes_;
};

// Whether a prompt-completion row, or an Alpaca row with this encoder, is a conversation.
bool is_conversational(Format format, const Json& row, const Encoder& encoder);

}  // namespace mgpu::data
