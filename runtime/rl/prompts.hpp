#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/config.hpp"
#include "runtime/data/encoder.hpp"
#include "runtime/data/order.hpp"
#include "runtime/rewards/item_list.hpp"

namespace mgpu::rl {

// A dataset row that the policy completes.
struct Prompt {
  std::vector<std::int32_t> tokens;
  std::string text;      // rendered as the model reads it
  std::string messages;  // the rendered messages, as JSON; empty: the row has plain text
  std::string row;       // all columns, as one JSON object
  std::string where;     // "file:line"
  std::string target;    // the item to find, for recommenders; empty: the row has none
};

// How rows become prompts. A row's `prompt` column is text or a list of messages; without one, its
// `problem` or `question` column becomes the user's message. `system` or `system_prompt` goes
// before it.
struct PromptOptions {
  // Every row has this column instead: the text of the user's message, or a list of messages.
  // Empty: the columns above.
  std::string column = {};
  std::string system_prompt = {};  // for rows without their own
  nlohmann::ordered_json template_extra = nlohmann::ordered_json::object();
  std::int64_t longest = 0;  // maximum tokens of a prompt; 0: no limit
  bool skip_bad_rows = false;
  bool needs_solution = false;               // a reward function reads that column
  bool needs_target = false;                 // training uses the item to find
  const rewards::ItemList* items = nullptr;  // every row's item is one of them; null: of any name
};

struct PromptSet {
  std::vector<Prompt> all;
  std::vector<data::SourceRange> ranges;  // one per file
  std::vector<std::string> notes;         // how many rows were read and skipped
  std::vector<std::string> digests;       // of the files' contents, one per file
};

// Reads files. Throws std::runtime_error with the file, the line and the reason.
PromptSet read_prompts(const std::vector<train::DataSource>& sources, const PromptOptions& options,
                       const data::Encoder& encoder);

}  // namespace mgpu::rl
