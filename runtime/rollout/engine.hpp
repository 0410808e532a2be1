#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/kernels/sampling.hpp"
#include "runtime/rollout/allowed_sequences.hpp"
#include "runtime/rollout/page_pool.hpp"
#include "runtime/rollout/paged_model.hpp"

namespace mgpu::rollout {

// A prompt and one seed per completion. A completion depends only on the weights, its prompt and
// its seed, not on what is generated at the same time.
struct Request {
  std::vector<std::int32_t> tokens;  // at least one
  std::vector<std::uint64_t> seeds;
};

enum class StopReason { stop_token, stop_text, length };

struct Completion {
  std::vector<std::int32_t> tokens;  // including the stop token
  std::vector<float> log_probs;      // of each token, from softmax(logits / temperature)
  StopReason stop_reason = StopReason::length;
  float score = 0;  // of a beam: the sum of log_probs / number of tokens ^ length_penalty
};

// Beam search. Its result is that of transformers' generate() with num_beams = count and without
// sampling; then `sampling` and the seeds have no effect, except that log-probs are those at the
// temperature.
struct BeamSettings {
  enum class EarlyStopping { no, yes, never };

  std::int64_t count = 0;  // 0: completions are sampled
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
  // Called before every burst of decoding steps; true ends generation. Empty: nothing does.
  std::function<bool()> cancelled = {};
};

// Called with the number of a request and all of its completions as soon as the last one is
// complete.
using RequestFinished = std::function<void(std::size_t, const std::vector<Completion>&)>;

struct EngineOptions {
  ModelOptions model;
  std::int64_t sequences = 64;  // generated at a time
  std::int64_t longest = 0;     // maximum tokens of prompt and completion
  std::int64_t pages = 0;       // of the KV cache; 0: enough for `sequences` of length `longest`
  std::int64_t prompt_tokens = 8192;  // per prefill pass
  std::int64_t burst = 1;             // decoding steps between synchronisations with the host
};

// Generates completions with continuous batching: when one ends, the next takes its place. A prompt
// is prefilled once, and its completions share its full pages.
class Engine {
 public:
  Engine(const model::ModelConfig& config, const EngineOptions& options,
         model::WeightProvider& provider);
  ~Engine();

  // Returns completions in the order of the requests and their seeds, or nothing if the settings'
  // `cancelled` returned true. Throws std::runtime_error for a prompt that is too long and for
  // logits without a finite softmax.
  std::vector<std::vector<Completion>> generate(const std::vector<Request>& requests,
                                                const GenerationSettings& settings,
                                                const RequestFinished& finished = {});

  // Counters of the last call: decoding steps and completion tokens, prefilled prompts and their
  // tokens.
  struct Counts {
    std::int64_t steps = 0, tokens = 0, prompts = 0, prompt_tokens = 0;
    double decode_seconds = 0,
           prefill_seconds = 0;  // prefill includes the first token of each completion

    Counts& operator+=(const Counts& other);
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Group;     // a prefilled prompt
  struct Sequence;  // a completion in progress
  struct Bucket;    // decoding steps with a fixed number of rows
  struct Work;      // one call of generate

  void admit(Work& work);
  void prefill_groups(Work& work, const std::vector<std::size_t>& prompts);
  bool has_free_pages(const Work& work, std::size_t prompt, bool read) const;
  void start_sequence(Work& work, std::size_t prompt, std::size_t index);
  void sample_first_tokens(Work& work, std::size_t first);
  Bucket& bucket(Work& work);
  void run_burst(Work& work);
  bool append_token(Work& work, Sequence& sequence, std::int32_t token, float log_prob) const;
  void finish_sequence(Work& work, std::size_t slot);
  void release_pages(const Work& work);
  void mark_seen(const Work& work, std::size_t first, const Tensor& seen) const;
  void draw(const Work& work, const Tensor& logits, const Tensor& seen,
            const ops::Draw& draw) const;
  std::int64_t pages_for(std::size_t prompt_tokens, const GenerationSettings& settings) const;

  const model::ModelConfig& config_;
  EngineOptions options_;
  PagedModel model_;
  PagePool pool_;
  Counts counts_;
};

}  // namespace mgpu::rollout
