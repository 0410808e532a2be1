#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/rollout/engine.hpp"
#include "runtime/rollout/length_estimate.hpp"
#include "runtime/rollout/rows.hpp"

// The state of one call of Engine::generate. Private to the engine's sources.
namespace mgpu::rollout {

struct Engine::Group {
  std::vector<std::int32_t> pages;  // of the prompt
  Tensor logits;                    // [vocab], at its last token
};

struct Engine::Sequence {
  std::size_t prompt = 0, index = 0;
  std::uint64_t number = 0;  // in the order of their starts
  std::vector<std::int32_t> pages;
  std::vector<std::int32_t> prompt_tokens;  // only with a repetition penalty
  std::int32_t position = 0;                // of the input token after those that were examined
  std::int32_t queued = 0;                  // steps that are not examined yet
  std::int32_t row = Rows::kNew;            // in the burst queued last
  std::uint64_t seed = 0;
  AllowedSequences::Node node = AllowedSequences::kStart;
  Completion completion;

  // How many more tokens it may get than are examined and queued.
  std::int64_t left(const GenerationSettings& settings) const {
    return settings.max_tokens - static_cast<std::int64_t>(completion.tokens.size()) - queued;
  }
};

// A sequence that starts in this row, or runs again.
struct Engine::NewRow {
  std::int64_t row = 0;
  const Sequence* sequence = nullptr;
};

// Both are bool [rows, vocabulary], or undefined if the settings do not need them.
struct Engine::Masks {
  Tensor seen;       // tokens of a row's prompt and completion
  Tensor forbidden;  // tokens that must not be sampled
};

// Decoding steps with a fixed number of rows and pages.
struct Engine::Bucket {
  Rows rows;
  ops::Recording step;

  Bucket(const RowsShape& shape, at::Device device, ops::Recording::Store& store,
         const std::function<void(Rows&)>& work)
      : rows(shape, device), step(store, [this, work] { work(rows); }) {}
};

struct Engine::Burst {
  std::vector<std::uint64_t> sequences;  // their numbers, one per row
  std::int64_t steps = 0;
  Rows::Results results;
};

// Waits for the current stream at its end, however that comes about, so that nothing is destroyed
// (graphs, and the tensors that they use) while queued steps use it.
struct UnfinishedWork {
  at::Device device;
  ~UnfinishedWork();
};

struct Engine::Work {
  const std::vector<Request>& requests;
  const GenerationSettings& settings;
  const RequestFinished& finished;
  std::int64_t burst = 1;  // decoding steps that are queued, at most
  std::deque<std::pair<std::size_t, std::size_t>> waiting;  // request, index of the completion
  std::vector<std::size_t> unstarted;                       // completions of each request
  std::map<std::size_t, Group> groups;                      // of requests that have unstarted ones
  std::vector<Sequence> running;                            // one per slot
  std::deque<Sequence> aside;                               // without pages, the oldest first
  std::uint64_t started = 0;
  std::vector<std::vector<Completion>> completions;
  std::vector<std::size_t> unfinished;  // completions of each request
  LengthEstimate lengths;
  ops::Recording::Store recordings;
  // By the pages of their tables, then by their number of rows.
  std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<Bucket>> buckets;
  std::deque<Burst> queued;            // the oldest first
  Rows::State state;                   // after the burst queued last
  std::int64_t steps_since_start = 0;  // of a sequence, queued
  UnfinishedWork unfinished_work;      // destroyed first
};

}  // namespace mgpu::rollout
