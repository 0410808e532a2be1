#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

namespace mgpu::data {

inline constexpr std::int32_t kNoTarget = -100;

// One micro-batch: sequences laid end to end, without padding. Attention does not cross sequences,
// except that a branch attends to its beginning (see `branches`).
// A rank without work in a step gets a batch of one token without a target: it takes part in every
// collective and adds nothing.
struct Batch {
  std::vector<std::int32_t> tokens;
  // Of each token, from 0 at the start of its sequence, or of the beginning that this one
  // continues.
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> targets;  // per token: the label of the *next* token, or kNoTarget
  std::vector<std::int32_t> starts;   // where sequences begin, and the end: sequences + 1 entries
  // If sequences share beginnings, then the first ones are these beginnings, and the sequences
  // [branches[i], branches[i + 1]) continue beginning i: they are its branches. Otherwise empty.
  std::vector<std::int32_t> branches;
  std::int32_t longest = 0;        // length of the longest sequence
  std::int64_t target_tokens = 0;  // targets that are not kNoTarget
};

// The batch of a rank without work.
Batch batch_without_work();

// One of `pieces` parts of a batch, with about equal numbers of tokens; `pieces` is a power of two.
// Every sequence is in one piece, in the order of the batch. Halves the batch again and again, so
// that with twice as many pieces each piece of several sequences is divided. A piece without a
// sequence is a batch without work. The batch must have no branches.
Batch piece_of(const Batch& batch, std::size_t piece, std::size_t pieces);

// Builds a batch: the only code that lays sequences end to end.
class BatchBuilder {
 public:
  BatchBuilder() { batch_.starts.push_back(0); }

  void reserve(std::size_t tokens, std::size_t sequences);

  // Appends one sequence, given in parts. Its tokens have no targets yet.
  void add(std::initializer_list<std::span<const std::int32_t>> parts);
  // Appends a branch of sequence `beginning`. All beginnings are added before, each gets at least
  // one branch, in their order, and every later sequence is a branch.
  void add_branch(std::size_t beginning,
                  std::initializer_list<std::span<const std::int32_t>> parts);
  // Sets the target of the last sequence's token at this position, which has none yet. kNoTarget is
  // ignored.
  void set_target(std::size_t position, std::int32_t target);

  Batch take();  // call it once, at the end

 private:
  void append(std::initializer_list<std::span<const std::int32_t>> parts, std::int32_t position);

  Batch batch_;
};

}  // namespace mgpu::data
