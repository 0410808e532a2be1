#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

namespace mgpu::data {

inline constexpr std::int32_t kNoTarget = -100;

// One micro-batch: sequences laid end to end, without padding. Attention does not cross sequences.
// A rank without work in a step gets a batch of one token without a target: it takes part in every
// collective and adds nothing.
struct Batch {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> positions;  // of each token, from 0 at the start of its sequence
  std::vector<std::int32_t> targets;    // per token: the label of the *next* token, or kNoTarget
  std::vector<std::int32_t> starts;     // where sequences begin, and the end: sequences + 1 entries
  std::int32_t longest = 0;             // length of the longest sequence
  std::int64_t target_tokens = 0;       // targets that are not kNoTarget
};

// The batch of a rank without work.
Batch batch_without_work();

// One of `pieces` parts of a batch, with about equal numbers of tokens; `pieces` is a power of two.
// Every sequence is in one piece, in the order of the batch. Halves the batch again and again, so
// that with twice as many pieces each piece of several sequences is divided. A piece without a
// sequence is a batch without work.
Batch piece_of(const Batch& batch, std::size_t piece, std::size_t pieces);

// Builds a batch: the only code that lays sequences end to end.
class BatchBuilder {
 public:
  BatchBuilder() { batch_.starts.push_back(0); }

  void reserve(std::size_t tokens, std::size_t sequences);

  // Appends one sequence, given in parts. Its tokens have no targets yet.
  void add(std::initializer_list<std::span<const std::int32_t>> parts);
  // Sets the target of the last sequence's token at this position, which has none yet. kNoTarget is
  // ignored.
  void set_target(std::size_t position, std::int32_t target);

  Batch take() { return std::move(batch_); }  // call it once, at the end

 private:
  Batch batch_;
};

}  // namespace mgpu::data
