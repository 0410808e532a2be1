#include "runtime/rl/item_tokens.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::rl {
namespace {

using Tokens = std::vector<std::int32_t>;

// The parts of a name like <a_1><b_2>; none for any other text.
std::vector<std::string_view> parts_of(std::string_view name) {
  std::vector<std::string_view> parts;
  while (!name.empty()) {
    const auto end = name.find('>');
    if (name.front() != '<' || end == name.npos) return {};
    parts.push_back(name.substr(0, end + 1));
    name.remove_prefix(end + 1);
  }
  return parts;
}

// Tokens of a name as they follow the end of MiniOneRec's prompts: some tokenizers encode the
// beginning of a text differently.
Tokens tokens_of(const text::Tokenizer& tokenizer, const std::string& name) {
  constexpr std::string_view kBefore = "### Response:\n";
  const auto before = tokenizer.encode(kBefore, false);
  auto tokens = tokenizer.encode(std::string(kBefore) + name + "\n", false);
  if (tokens.size() <= before.size() || !std::equal(before.begin(), before.end(), tokens.begin()))
    return tokenizer.encode(name + "\n", false);
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(before.size()));
  return tokens;
}

void check_tokens(const rewards::Item& item, const Tokens& tokens, const text::Tokenizer& tokenizer,
                  std::int64_t vocab_size) {
  for (const auto part : parts_of(item.name))
    if (!tokenizer.id_of(part))
      throw rendezvous::InputError(
          fmt::format("{}: {} is not a token of the model's vocabulary; train it first, with "
                      "new_tokens in the supervised stage",
                      item.where, rendezvous::shown(part)));
  for (const auto token : tokens) {
    if (token == tokenizer.unk_id())
      throw rendezvous::InputError(fmt::format("{}: the model's vocabulary cannot represent {}",
                                               item.where, rendezvous::shown(item.name)));
    if (token >= vocab_size)
      throw rendezvous::InputError(
          fmt::format("{}: token {} of {} has no row in the model's embeddings, which have {}; "
                      "train it first, with new_tokens in the supervised stage",
                      item.where, token, rendezvous::shown(item.name), vocab_size));
  }
}

// Rewards compare the text of a completion with the name.
void check_text(const rewards::Item& item, const Tokens& tokens, const text::Tokenizer& tokenizer) {
  const auto text = tokenizer.decode(tokens, true);
  const auto read = rewards::bare_name(text);
  if (read == item.name) return;
  throw rendezvous::InputError(
      fmt::format("{}: a completion of {} reads {}, so no completion could be this item; its parts "
                  "must be tokens that are not special and whose text stays as it is",
                  item.where, rendezvous::shown(item.name),
                  read.empty() ? "as nothing" : rendezvous::shown(read)));
}

}  // namespace

ItemTokens::ItemTokens(rewards::ItemList items, const text::Tokenizer& tokenizer,
                       std::int32_t end_token, std::int64_t vocab_size)
    : items_(std::move(items)), end_token_(end_token) {
  std::map<std::string_view, std::size_t> known;
  for (const auto& item : items_.all()) {
    const auto [found, is_new] = known.emplace(item.name, all_.size());
    if (is_new) {
      try {
        all_.push_back(tokens_of(tokenizer, item.name));
      } catch (const std::runtime_error& e) {
        rendezvous::throw_like(e, fmt::format("{}: {}", item.where, e.what()));
      }
      check_tokens(item, all_.back(), tokenizer, vocab_size);
      check_text(item, all_.back(), tokenizer);
    }
    sequence_of_.push_back(found->second);
  }
}

Tokens ItemTokens::completion_of(std::string_view text) const {
  const auto item = items_.find(text);
  if (!item) return {};
  auto tokens = all_[sequence_of_[*item]];
  tokens.push_back(end_token_);
  return tokens;
}

}  // namespace mgpu::rl
