#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "runtime/kernels/sampling.hpp"
#include "runtime/rollout/generation_settings.hpp"
#include "runtime/rollout/page_pool.hpp"
#include "runtime/rollout/paged_model.hpp"

namespace mgpu::rollout {

// A prompt and one seed per completion. Up to rounding, a completion depends only on the weights,
// its prompt and its seed, not on what is generated at the same time.
struct Request {
  std::vector<std::int32_t> tokens;  // at least one
  std::vector<std::uint64_t> seeds;
};

// Called with the number of a request and all of its completions as soon as the last one is
// complete.
using RequestFinished = std::function<void(std::size_t, const std::vector<Completion>&)>;

struct EngineOptions {
  ModelOptions model;
  std::int64_t sequences = 64;  // generated at a time
  std::int64_t longest = 0;     // maximum tokens of prompt and completion
  // Of the KV cache; 0: enough for `sequences` of length `longest`. With fewer, sequences get pages
  // as they grow.
  std::int64_t pages = 0;
  std::int64_t prompt_tokens = 8192;  // per prefill pass
  // Decoding steps that are queued on the device, at most.
  std::int64_t burst = 1;
  // Two bursts of half the size, of which the host examines one while the device computes the
  // other. Up to rounding it does not change what is generated.
  bool overlap = true;
};

// Generates completions with continuous batching: when one ends, the next takes its place. A prompt
// is prefilled once, and its completions share its full pages. As many completions run as are
// expected to fit into the KV cache. If they become longer, those that started last are set aside;
// later their tokens are computed again, and they go on.
class Engine {
 public:
  Engine(const model::ModelConfig& config, const EngineOptions& options,
         model::WeightProvider& provider);
  ~Engine();

  // Returns completions in the order of the requests and their seeds, or nothing if the settings'
  // `cancelled` returned true. Throws std::runtime_error for a prompt that is too long, for logits
  // without a finite softmax, for settings that check_settings() rejects, and if there are fewer
  // beams than seeds.
  std::vector<std::vector<Completion>> generate(const std::vector<Request>& requests,
                                                const GenerationSettings& settings,
                                                const RequestFinished& finished = {});

  // Counters of the last call: decoding steps and completion tokens, prefilled prompts and their
  // tokens; sequences in a decoding step, summed over the steps, also those that had ended without
  // the host's knowledge; both again for the steps while completions wait to start; tokens of
  // prompts and completions that were computed once more because there were not enough pages;
  // bursts that were queued behind another one.
  struct Counts {
    std::int64_t steps = 0, tokens = 0, prompts = 0, prompt_tokens = 0;
    std::int64_t rows = 0, steps_while_waiting = 0, rows_while_waiting = 0;
    std::int64_t computed_again = 0, queued_behind = 0;
    double decode_seconds = 0,
           prefill_seconds = 0;  // prefill includes the first token of each completion

    Counts& operator+=(const Counts& other);
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Group;     // a prefilled prompt
  struct Sequence;  // a completion in progress
  struct Bucket;    // decoding steps with a fixed number of rows
  struct Masks;     // of a step's tokens
  struct NewRow;
  struct Burst;  // queued decoding steps
  struct Work;   // one call of generate

  bool admit(Work& work);
  void prefill_groups(Work& work, const std::vector<std::size_t>& prompts);
  void check_cache(const std::vector<Request>& requests, const GenerationSettings& settings) const;
  std::int64_t free_pages() const;
  std::int64_t pages_with(const Work& work, std::size_t prompt, std::int64_t tokens) const;
  std::int64_t spare_pages(const Work& work) const;
  std::int64_t expected_pages(const Work& work, std::size_t prompt) const;
  void forget_prompts(Work& work);
  bool provide_pages(Work& work, std::int64_t steps);
  void set_last_aside(Work& work);
  bool run_again(Work& work);
  void start_sequence(Work& work, std::size_t prompt, std::size_t index);
  void sample_first_tokens(Work& work, std::size_t first);
  Bucket& bucket(Work& work, std::int64_t sequences, std::int64_t pages);
  bool may_overlap(const Work& work) const;
  void decode(Work& work);
  bool queue_burst(Work& work, std::int64_t most_steps);
  void examine_burst(Work& work);
  bool append_token(Work& work, Sequence& sequence, std::int32_t token, float log_prob) const;
  void finish_sequence(Work& work, std::size_t slot);
  void release_pages(const Work& work);
  void check_requests(const std::vector<Request>& requests,
                      const GenerationSettings& settings) const;
  void mark_seen(const std::vector<NewRow>& rows, const Tensor& seen) const;
  void mark_forbidden(const Work& work, std::size_t first, const Tensor& forbidden) const;
  void draw(const Work& work, const Tensor& logits, const Masks& masks,
            const ops::Draw& draw) const;

  const model::ModelConfig& config_;
  EngineOptions options_;
  PagedModel model_;
  PagePool pool_;
  Counts counts_;
};

}  // namespace mgpu::rollout
