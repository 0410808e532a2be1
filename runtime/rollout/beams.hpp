#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/rollout/generation_settings.hpp"

namespace mgpu::rollout {

// The beam search for one prompt, step by step as in transformers' generate(): it decides which
// continuations become the next beams, and which completions are returned. It computes no model.
//
// Scores are added in fp32. Beams that transformers fills up with impossible continuations do not
// exist here, so there can be fewer than `count`.
class Beams {
 public:
  // An unfinished completion. Before the first step there is one, without tokens.
  struct Beam {
    float score = 0;           // the sum of its tokens' log-probs
    std::size_t parent = 0;    // its position in the previous step's list of beams
    std::int32_t token = 0;    // the last one
    std::ptrdiff_t last = -1;  // in tokens_; -1: there is no token
    AllowedSequences::Node node = AllowedSequences::kStart;
  };
  // A token that may follow the beam at this position of running().
  struct Continuation {
    std::size_t beam = 0;
    std::int32_t token = 0;
    float log_prob = 0;
  };

  // `settings` must outlive it.
  explicit Beams(const GenerationSettings& settings);

  // The unfinished beams, best first; none if done().
  const std::vector<Beam>& running() const { return running_; }
  // The number of tokens of each of them.
  std::int64_t length() const { return length_; }
  // How many continuations of a beam advance() needs: the most likely ones.
  std::int64_t candidates() const;
  // One step. Continuations that are not allowed must not be among them.
  void advance(const std::vector<Continuation>& continuations);
  bool done() const { return running_.empty(); }
  // The complete beams, best first, at most `count`.
  std::vector<Completion> completions() const;

 private:
  // A token of a beam and the one before it, which beams share.
  struct Token {
    std::ptrdiff_t previous = -1;
    std::int32_t id = 0;
    float log_prob = 0;
  };
  struct Complete {
    float score = 0;  // with the length penalty
    std::ptrdiff_t last = -1;
    StopReason reason = StopReason::length;
  };

  std::vector<std::int32_t> tokens_until(std::ptrdiff_t last) const;
  std::optional<StopReason> ends(std::ptrdiff_t last) const;
  float penalized(float score, std::int64_t length) const;
  bool can_improve() const;

  const GenerationSettings* settings_;
  std::size_t count_;
  std::int64_t length_ = 0;
  std::vector<Token> tokens_;
  std::vector<Beam> running_;
  std::vector<Complete> complete_;  // the best `count_`, best first
};

}  // namespace mgpu::rollout
