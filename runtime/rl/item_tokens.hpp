#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/rewards/item_list.hpp"
#include "runtime/text/tokenizer.hpp"

namespace mgpu::rl {

// The completions that name an item: its name, a line feed and the end-of-sequence token, as
// MiniOneRec's models learn them. No completion is the beginning of another one, even if an item's
// name is the beginning of another name.
class ItemTokens {
 public:
  // Throws std::runtime_error with the file and line of an item that the model cannot name: a part
  // such as <a_1> is not a token of its vocabulary, a token has no row in its embeddings
  // (`vocab_size` rows), or the text of the tokens, without special ones, is not the name.
  ItemTokens(rewards::ItemList items, const text::Tokenizer& tokenizer, std::int32_t end_token,
             std::int64_t vocab_size);

  const rewards::ItemList& items() const { return items_; }
  // One completion per name, in the order of the first item with it, without the end token.
  const std::vector<std::vector<std::int32_t>>& all() const { return all_; }
  // The whole completion that names the same item as a text; empty if no item has that name.
  std::vector<std::int32_t> completion_of(std::string_view text) const;
  std::int32_t end_token() const { return end_token_; }

 private:
  rewards::ItemList items_;
  std::int32_t end_token_;
  std::vector<std::vector<std::int32_t>> all_;
  std::vector<std::size_t> sequence_of_;  // per item
};

}  // namespace mgpu::rl
