#pragma once

#include <c10/core/Event.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/kernels/recording.hpp"
#include "runtime/kernels/sampling.hpp"
#include "runtime/rollout/paged_model.hpp"

namespace mgpu::rollout {

// The number of rows of a step with `count` sequences, at most `max_count`. On a GPU there are only
// a few sizes, so that few steps must be recorded; the surplus rows are padding.
std::int64_t rows_for(std::int64_t count, std::int64_t max_count, at::Device device);

// The pages of a table whose longest sequence has `count` of `max_count` pages. There are only a
// few sizes. Long tables are for long sequences only: attention divides those over several blocks,
// which takes short ones longer, and the host sends the whole table in each burst.
std::int64_t table_pages_for(std::int64_t count, std::int64_t max_count);

// The number of rows for a few steps that need `rows`, so few that recording another size costs
// more than it saves: the next of the recorded sizes, in ascending order, with which a step takes
// about the same time. If there is none, `rows`.
std::int64_t rows_for_few_steps(std::int64_t rows, const std::vector<std::int64_t>& recorded,
                                at::ScalarType dtype);

struct RowsShape {
  std::int64_t rows = 0;
  std::int64_t pages = 0;       // of a sequence, at most: the width of the table
  std::int64_t burst = 1;       // steps of a burst, at most
  std::int64_t vocabulary = 0;  // 0: earlier tokens are not tracked
  std::int64_t restricted = 0;  // size of the vocabulary; 0: every token may be sampled
};

// The inputs and outputs of decoding steps, in tensors that keep their addresses from step to step.
// Only Results::wait() waits for the device.
class Rows {
 public:
  static constexpr std::int32_t kNew = -1;

  // A sequence at the start of a burst.
  struct Row {
    std::int32_t from = kNew;   // its row in the burst queued before, which samples its next token
    std::int32_t token = 0;     // the next input token of a new sequence
    std::int32_t position = 0;  // of the next input token
    std::int32_t drawn = 0;     // tokens sampled so far
    std::int64_t seed = 0;
    const std::vector<std::int32_t>* pages = nullptr;
  };
  // What a burst leaves on the device for the next one, whose rows may be others.
  struct State {
    Tensor tokens;  // the next input tokens
    Tensor seen;
  };
  // The tokens that a burst samples, step by step: a copy on the host.
  class Results {
   public:
    void wait() const;  // until the steps have run; before that, there are no values
    std::int32_t token(std::int64_t step, std::size_t row) const {
      return values_.const_data_ptr<std::int32_t>()[place(step, 0, row)];
    }
    float log_prob(std::int64_t step, std::size_t row) const {
      return log_probs_.const_data_ptr<float>()[place(step, 1, row)];
    }

   private:
    friend class Rows;
    std::int64_t place(std::int64_t step, std::int64_t kind, std::size_t row) const {
      return (2 * step + kind) * values_.size(2) + static_cast<std::int64_t>(row);
    }

    Tensor values_;     // [steps, 2, rows]
    Tensor log_probs_;  // the same memory
    std::optional<c10::Event> copied_;
  };

  Rows(const RowsShape& shape, at::Device device);

  const RowsShape& shape() const { return shape_; }
  const StepInput& input() const { return input_; }
  const ops::Draw& draw() const { return draw_; }
  // bool [rows, vocabulary]: the tokens of a row's prompt and completion; undefined if not tracked.
  const Tensor& seen() const { return seen_; }

  // bool [rows, vocabulary]: the tokens that must not be sampled next; undefined if every one may.
  const Tensor& forbidden() const { return forbidden_; }

  // Starts a burst: sets the rows; the remaining rows are padding. `before` is the state after the
  // burst queued before. The caller sets forbidden(), and seen() of new sequences.
  void fill(const std::vector<Row>& rows, const State& before = {});
  // Called after sampling: stores the sampled tokens and makes them the next input. It does not
  // read values on the host and allocates nothing that outlives the call.
  void advance();
  State state() const { return {input_.tokens, seen_}; }
  // Those of the burst's first `steps` steps. The next burst may be queued at once.
  Results results(std::int64_t steps) const;

 private:
  struct Inputs;

  void take_over(const std::vector<Row>& rows, const State& before);

  RowsShape shape_;
  at::Device device_;
  Tensor block_;          // the memory of a burst's inputs, which are sent in one copy
  Tensor step_;           // int64 [1], in block_: within the burst
  Tensor advancing_;      // int32 [2, rows], in block_: counters and positions
  Tensor staged_, from_;  // int32 [rows], in block_: tokens of new sequences; places in (tokens
                          // before, staged)
  Tensor sampled_;        // int32 [2, rows]: tokens, and log-probs as bits
  Tensor values_;         // int32 [burst, 2, rows]: those of each step
  StepInput input_;
  ops::Draw draw_;
  Tensor seen_, forbidden_;
};

}  // namespace mgpu::rollout
