#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/grpo/loss.hpp"

namespace mgpu::grpo {

// The tokens of a micro-batch as inputs of the loss: fp64, and 0 for tokens that are not in the
// loss.
class Tokens {
 public:
  explicit Tokens(const LossInput& input);

  Tensor masked(const Tensor& x) const;  // [n] as described above
  Tensor sums(const Tensor& x) const;    // [n] -> [s], in the order of tokens
  Tensor means(const Tensor& x) const;   // [n] -> [s]; 0 for an empty sequence
  Tensor spread(const Tensor& x) const;  // [s] -> [n], each sequence's value to its tokens

  const Tensor& mask() const { return mask_; }        // [n] bool: in the loss
  const Tensor& weights() const { return weights_; }  // [n] 1 or 0
  const Tensor& lengths() const { return lengths_; }  // [s] tokens in the loss, at least 1
  const Tensor& present() const { return present_; }  // [s] 1 if a sequence has tokens in the loss
  const Tensor& advantages() const { return advantages_; }  // [n]
  const Tensor& log_probs() const { return log_probs_; }    // [n]

 private:
  Tensor sequence_, starts_;
  Tensor mask_, weights_, lengths_, present_, advantages_, log_probs_;
};

}  // namespace mgpu::grpo
