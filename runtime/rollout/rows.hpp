#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/kernels/recording.hpp"
#include "runtime/kernels/sampling.hpp"
#include "runtime/rollout/paged_model.hpp"

namespace mgpu::rollout {

// How many rows a step of `count` sequences has, of at most `most`: on a GPU a few numbers only, so
// that few steps are to be recorded; the rows that are over stand for no sequence.
std::int64_t rows_for(std::int64_t count, std::int64_t most, at::Device device);

struct RowsShape {
  std::int64_t rows = 0;
  std::int64_t pages = 0;       // of a sequence, at most
  std::int64_t burst = 1;       // steps between looks at what came out
  std::int64_t vocabulary = 0;  // 0: nobody asks which tokens there have been
};

// What a step reads and writes, in tensors that stay where they are from step to step.
class Rows {
 public:
  // A sequence as a burst finds it.
  struct Row {
    std::int32_t token = 0;     // that is read next
    std::int32_t position = 0;  // where it stands
    std::int32_t drawn = 0;     // tokens so far
    std::int64_t seed = 0;
    const std::vector<std::int32_t>* pages = nullptr;
  };
  // What a burst made of a row, step after step.
  struct Made {
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
  // bool [rows, vocabulary]: the tokens that a row has read or made; undefined if nobody asks.
  const Tensor& seen() const { return seen_; }

  // The rest of the rows stands for nobody. What they have seen is set by the caller.
  void fill(const std::vector<Row>& rows);
  // After a draw: keeps what was drawn, and makes it what is read next. Neither looks at a value
  // nor allocates what outlives it.
  void advance();
  // Waits for the steps of the burst.
  Made made() const;

 private:
  RowsShape shape_;
  at::Device device_;
  StepInput input_;
  ops::Draw draw_;
  Tensor seen_;
  Tensor tokens_, log_probs_;  // [burst, rows]
  Tensor step_;                // int64 [1]: of the burst
};

}  // namespace mgpu::rollout
