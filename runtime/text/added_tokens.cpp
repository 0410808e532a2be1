#include "runtime/text/added_tokens.hpp"

#include <algorithm>
#include <utility>

#include "runtime/text/unicode.hpp"

namespace mgpu::text {
namespace {

std::size_t before_white_space(std::string_view text, std::size_t from, std::size_t end) {
  while (end > from) {
    const CodePoint c = code_point_before(text, end);
    if (!is_white_space(c.value)) break;
    end -= c.size;
  }
  return end;
}

std::size_t after_white_space(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const CodePoint c = code_point_at(text, at);
    if (!is_white_space(c.value)) break;
    at += c.size;
  }
  return at;
}

}  // namespace

void Finder::add(std::string_view word, std::int32_t id) {
  if (word.empty()) return;
  words_.add(word, id);
  begins_[static_cast<unsigned char>(word.front())] = true;
}

Finder::Found Finder::find(std::string_view text, std::size_t from) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!begins_[static_cast<unsigned char>(text[begin])]) continue;
    Found longest;
    std::int32_t node = ByteTrie::kRoot;
    for (std::size_t at = begin; at < text.size(); ++at) {
      node = words_.next(node, text[at]);
      if (node < 0) break;
      if (words_.id(node) >= 0) longest = {begin, at + 1, words_.id(node)};
    }
    if (longest.id >= 0) return longest;
  }
  return {};
}

void AddedTokens::add(AddedToken token) {
  if (const auto old = tokens_.find(token.id); old != tokens_.end())
    ids_.erase(old->second.content);
  if (const auto old = ids_.find(token.content); old != ids_.end()) tokens_.erase(old->second);
  ids_[token.content] = token.id;
  tokens_[token.id] = std::move(token);
}

void AddedTokens::prepare(const Normalizer& normalizer) {
  plain_ = normalized_ = Finder();
  std::string buffer;
  for (auto& [id, token] : tokens_) {
    token.decoded = token.content;
    if (token.normalized) {
      token.decoded = normalizer.apply(token.content, buffer).text;
      normalized_.add(token.decoded, id);
    } else {
      plain_.add(token.content, id);
    }
    if (token.single_word && !word_) word_.emplace("[" + word_class() + "]");
  }
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = ids_.find(std::string(content));
  return found == ids_.end() ? nullptr : find(found->second);
}

const AddedToken* AddedTokens::find(std::int32_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : &found->second;
}

std::int32_t AddedTokens::end() const {
  return tokens_.empty() ? 0 : tokens_.rbegin()->first + 1;
}

bool AddedTokens::within_word(std::string_view text, std::size_t begin, std::size_t end) const {
  const auto is_word = [&](std::string_view letter) {
    Match match;
    return word_->find(letter, 0, match);
  };
  if (begin > 0) {
    const std::size_t size = code_point_before(text, begin).size;
    if (is_word(text.substr(begin - size, size))) return true;
  }
  return end < text.size() && is_word(text.substr(end, code_point_at(text, end).size));
}

void AddedTokens::split(std::string_view text, bool normalized, bool at_start,
                        std::vector<Piece>& pieces) const {
  const Finder& finder = normalized ? normalized_ : plain_;
  std::size_t done = 0;
  Finder::Found found;
  for (std::size_t from = 0; (found = finder.find(text, from)).id >= 0; from = found.end) {
    const AddedToken& token = tokens_.at(found.id);
    if (token.single_word && within_word(text, found.begin, found.end)) continue;
    std::size_t begin = found.begin;
    if (token.lstrip) begin = std::max(before_white_space(text, done, begin), done);
    if (begin > done) {
      pieces.push_back({text.substr(done, begin - done), -1, at_start && done == 0});
    }
    const std::size_t end =
        token.rstrip ? after_white_space(text, std::max(found.end, done)) : found.end;
    if (begin < end) pieces.push_back({{}, token.id});
    // A token that is itself white space can be found again within the white space matched by
    // rstrip. HF's tokenizers behave the same way, and the ids must be equal.
    done = end;
  }
  if (done < text.size()) pieces.push_back({text.substr(done), -1, at_start && done == 0});
}

}  // namespace mgpu::text
