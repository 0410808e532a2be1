#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/kernels/sampling_filters.hpp"
#include "runtime/rollout/allowed_sequences.hpp"

namespace mgpu::rollout {

enum class StopReason { stop_token, stop_text, length };

struct Completion {
  std::vector<std::int32_t> tokens;  // including the stop token
  // Of each token, from softmax(logits / temperature) over the whole vocabulary, also if only some
  // tokens are allowed: training computes the same value.
  std::vector<float> log_probs;
  StopReason stop_reason = StopReason::length;
  float score = 0;  // of a beam: the sum of log_probs / number of tokens ^ length_penalty
};

// Beam search. Its result is that of transformers' generate() with num_beams = count and without
// sampling. `sampling` and the seeds have no effect on it, except that the log-probs are those at
// the temperature.
struct BeamSettings {
  // When the search ends, as in transformers (False, True, "never"). With at least `count` complete
  // beams: `no`, as soon as the best unfinished beam, scored at its present length, is not better
  // than the worst of them; `yes`, at once; `never`, as soon as it cannot become better.
  enum class EarlyStopping { no, yes, never };

  std::int64_t count = 0;  // 0: completions are sampled; 1: the most likely token at every step
  double length_penalty = 1;
  EarlyStopping early_stopping = EarlyStopping::no;
};

struct GenerationSettings {
  ops::Sampling sampling;
  double repetition_penalty = 1;  // of earlier tokens, as in transformers
  std::int64_t max_tokens = 512;
  std::vector<std::int32_t> stop_tokens;
  std::vector<std::string> stop_texts;
  // Nothing else is generated. Its end token must be a stop token. Null: every token is allowed.
  const AllowedSequences* allowed = nullptr;
  // A request has at most `count` seeds; it gets as many completions, the best beams first.
  BeamSettings beams;
  // Decodes tokens; required for stop_texts.
  std::function<std::string(std::span<const std::int32_t>)> text_of;
  // Called each time before bursts of decoding steps are queued or examined; true ends generation
  // after the steps that are queued already. Empty: nothing does.
  std::function<bool()> cancelled = {};
};

// Whether the last token of a completion ends it, and why.
std::optional<StopReason> stop_reason(std::span<const std::int32_t> tokens,
                                      const GenerationSettings& settings);

// Throws std::runtime_error if settings contradict each other or a vocabulary of that size.
void check_settings(const GenerationSettings& settings, std::int64_t vocabulary);

}  // namespace mgpu::rollout
