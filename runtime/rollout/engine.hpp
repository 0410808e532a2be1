#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/kernels/sampling.hpp"
#include "runtime/rollout/page_pool.hpp"
#include "runtime/rollout/paged_model.hpp"

namespace mgpu::rollout {

// One prompt and how often it is to be completed: once for each seed. What a completion becomes
// depends on the weights, its prompt and its seed, not on what is generated beside it.
struct Prompt {
  std::vector<std::int32_t> tokens;  // at least one
  std::vector<std::uint64_t> seeds;
};

enum class Ended { by_token, by_text, at_length };

struct Completion {
  std::vector<std::int32_t> tokens;  // the one that ended it included
  std::vector<float> log_probs;      // of each, of softmax(logits / temperature)
  Ended ended = Ended::at_length;
};

struct Wanted {
  ops::Sampling sampling;
  double repetition_penalty = 1;  // divides the logits above 0 of what came before, as transformers
  std::int64_t most_tokens = 512;
  std::vector<std::int32_t> stop_tokens;
  std::vector<std::string> stop_texts;
  // Text of tokens; needed for stop_texts.
  std::function<std::string(std::span<const std::int32_t>)> text_of;
};

struct EngineOptions {
  ModelOptions model;
  std::int64_t sequences = 64;  // that are continued together
  std::int64_t longest = 0;     // prompt and completion
  std::int64_t pages = 0;       // of the cache; 0: so many that `sequences` of the longest fit
  std::int64_t prompt_tokens = 8192;  // that are read at a time
  std::int64_t burst = 1;             // steps between looks at what came out
};

// Generates completions with continuous batching: as soon as one ends the next takes its place. A
// prompt is read once, and its completions share its whole pages.
class Engine {
 public:
  Engine(const model::ModelConfig& config, const EngineOptions& options,
         model::WeightProvider& provider);
  ~Engine();

  // In the order of the prompts, then of their seeds. Throws std::runtime_error for a prompt that
  // leaves no room, and for logits without a finite softmax.
  std::vector<std::vector<Completion>> generate(const std::vector<Prompt>& prompts,
                                                const Wanted& wanted);

  // Of the last call: steps, and the tokens that completions have; prompts read, and their tokens.
  struct Counts {
    std::int64_t steps = 0, tokens = 0, prompts = 0, prompt_tokens = 0;
    double stepping = 0, reading = 0;  // seconds; with a prompt goes the first token drawn

    Counts& operator+=(const Counts& other);
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Group;     // a prompt that has been read
  struct Sequence;  // a completion under way
  struct Bucket;    // steps with one number of rows
  struct Work;      // one call of generate

  void admit(Work& work);
  void open_groups(Work& work, const std::vector<std::size_t>& prompts);
  bool has_room(const Work& work, std::size_t prompt, bool read) const;
  void start(Work& work, std::size_t prompt, std::size_t index);
  void draw_first(Work& work, std::size_t first);
  Bucket& bucket(Work& work);
  void run_burst(Work& work);
  bool take(Work& work, Sequence& sequence, std::int32_t token, float log_prob) const;
  void finish(Work& work, std::size_t slot);
  void mark_seen(const Work& work, std::size_t first, const Tensor& seen) const;
  void draw(const Work& work, const Tensor& logits, const Tensor& seen,
            const ops::Draw& draw) const;
  std::int64_t pages_for(std::size_t prompt_tokens, const Wanted& wanted) const;

  const model::ModelConfig& config_;
  EngineOptions options_;
  PagedModel model_;
  PagePool pool_;
  Counts counts_;
};

}  // namespace mgpu::rollout
