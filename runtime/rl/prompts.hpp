#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/data/encoder.hpp"
#include "runtime/data/order.hpp"

namespace mgpu::rl {

// A row of a data set that the policy is asked to complete.
struct Question {
  std::vector<std::int32_t> tokens;
  std::string text;      // as the model sees it
  std::string messages;  // what was rendered, as JSON; empty: the row has plain text
  std::string row;       // all columns, as one JSON object
  std::string where;     // "file:line"
};

// How rows become prompts. A row's `prompt` is a text or a list of messages, else its `problem` or
// `question` is what a user says; `system` or `system_prompt` goes before.
struct PromptOptions {
  std::string column = "prompt";  // another name for `prompt`
  std::string system_prompt;      // of rows without their own
  nlohmann::ordered_json template_extra = nlohmann::ordered_json::object();
  std::int64_t longest = 0;  // tokens that a prompt may have; 0: any number
  bool skip_bad_rows = false;
  bool needs_solution = false;  // a reward reads that column
};

struct Questions {
  std::vector<Question> all;
  std::vector<data::SourceRange> ranges;  // a file each
  std::vector<std::string> notes;         // what became of the rows
};

// Reads JSONL files. Throws std::runtime_error naming the file, the line and what is wrong.
Questions read_questions(const std::vector<train::DataSource>& sources,
                         const PromptOptions& options, const data::Encoder& encoder);

}  // namespace mgpu::rl
