#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace mgpu::rollout {

// The completions that a model may generate, as a trie over token ids. After the tokens of a
// sequence comes the end token, which is added to each of them. A sequence may be the beginning of
// another: after it, both the end token and the other one's next token are allowed. It is
// immutable, so threads can share it.
class AllowedSequences {
 public:
  using Tokens = std::vector<std::int32_t>;
  // A position in the trie: what has been generated so far.
  using Node = std::uint32_t;
  static constexpr Node kStart = 0, kNotAllowed = ~Node{0};
  // Two equal sequences, by their positions in the list.
  struct Repetition {
    std::size_t sequence = 0, first = 0;
    friend bool operator==(const Repetition&, const Repetition&) = default;
  };

  // Throws std::runtime_error if there is no sequence, if one is empty, contains the end token or
  // contains a negative number; the message counts sequences from 1. Equal sequences are one.
  AllowedSequences(std::span<const Tokens> sequences, std::int32_t end_token);

  // The tokens that may follow, ascending; none after the end token.
  std::span<const std::int32_t> next(Node node) const {
    return std::span(tokens_).subspan(edges_[node], edges_[node + 1] - edges_[node]);
  }
  // The position after `token`, or kNotAllowed.
  Node after(Node node, std::int32_t token) const;

  // The number of different sequences.
  std::size_t size() const { return size_; }
  // The sequences that occurred earlier in the list, ascending.
  const std::vector<Repetition>& repetitions() const { return repetitions_; }
  // The number of tokens of the longest one, including the end token.
  std::int64_t longest() const { return longest_; }
  std::int32_t end_token() const { return end_token_; }
  // All tokens of the sequences, ascending, without the end token.
  const Tokens& vocabulary() const { return vocabulary_; }

 private:
  std::int32_t end_token_;
  std::size_t size_ = 0;
  std::int64_t longest_ = 0;
  std::vector<Repetition> repetitions_;
  Tokens vocabulary_;
  // Nodes are numbered level by level, so the node that edge e leads to is e + 1.
  Tokens tokens_;            // of the edges
  std::vector<Node> edges_;  // of each node: the first one; ends with their number
};

}  // namespace mgpu::rollout
