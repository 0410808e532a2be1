#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/kernels/recording.hpp"
#include "runtime/kernels/sampling.hpp"
#include "runtime/rollout/paged_model.hpp"

namespace mgpu::rollout {

// The number of rows of a step with `count` sequences, at most `max_count`. On a GPU there are only
// a few sizes, so that few steps must be recorded; the surplus rows are padding.
std::int64_t rows_for(std::int64_t count, std::int64_t max_count, at::Device device);

struct RowsShape {
  std::int64_t rows = 0;
  std::int64_t pages = 0;       // of a sequence, at most
  std::int64_t burst = 1;       // steps between synchronisations with the host
  std::int64_t vocabulary = 0;  // 0: earlier tokens are not tracked
  std::int64_t restricted = 0;  // size of the vocabulary; 0: every token may be sampled
};

// The inputs and outputs of decoding steps, in tensors that keep their addresses from step to step.
class Rows {
 public:
  // A sequence at the start of a burst.
  struct Row {
    std::int32_t token = 0;     // the next input token
    std::int32_t position = 0;  // its position
    std::int32_t drawn = 0;     // tokens sampled so far
    std::int64_t seed = 0;
    const std::vector<std::int32_t>* pages = nullptr;
  };
  // The tokens that a burst sampled, step by step.
  struct Results {
    std::int64_t rows = 0;
    Tensor tokens, log_probs;  // [burst, rows], on the host

    std::int32_t token(std::int64_t step, std::size_t row) const {
      return tokens.const_data_ptr<std::int32_t>()[step * rows + static_cast<std::int64_t>(row)];
    }
    float log_prob(std::int64_t step, std::size_t row) const {
      return log_probs.const_data_ptr<float>()[step * rows + static_cast<std::int64_t>(row)];
    }
  };

  Rows(const RowsShape& shape, at::Device device);

  const RowsShape& shape() const { return shape_; }
  const StepInput& input() const { return input_; }
  const ops::Draw& draw() const { return draw_; }
  // bool [rows, vocabulary]: the tokens of a row's prompt and completion; undefined if not tracked.
  const Tensor& seen() const { return seen_; }

  // bool [rows, vocabulary]: the tokens that must not be sampled next; undefined if every one may.
  const Tensor& forbidden() const { return forbidden_; }

  // Sets the rows; the remaining rows are padding. The caller sets seen() and forbidden().
  void fill(const std::vector<Row>& rows);
  // Called after sampling: stores the sampled tokens and makes them the next input. It does not
  // read values on the host and allocates nothing that outlives the call.
  void advance();
  // Waits for the steps of the burst.
  Results results() const;

 private:
  RowsShape shape_;
  at::Device device_;
  StepInput input_;
  ops::Draw draw_;
  Tensor seen_, forbidden_;
  Tensor tokens_, log_probs_;  // [burst, rows]
  Tensor step_;                // int64 [1]: within the burst
};

}  // namespace mgpu::rollout
