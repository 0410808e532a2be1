#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/grpo/loss.hpp"

namespace mgpu::grpo {

// The tokens of a micro-batch as the loss sees them: fp64, and 0 where they do not count.
class Tokens {
 public:
  explicit Tokens(const LossInput& input);

  Tensor of(const Tensor& x) const;      // [n] as said above
  Tensor sums(const Tensor& x) const;    // [n] -> [s], in the order of tokens
  Tensor means(const Tensor& x) const;   // [n] -> [s]; 0 where a sequence has no token
  Tensor spread(const Tensor& x) const;  // [s] -> [n], each sequence's to its tokens

  const Tensor& mask() const { return mask_; }              // [n] bool: it counts
  const Tensor& counted() const { return counted_; }        // [n] 1 or 0
  const Tensor& lengths() const { return lengths_; }        // [s] tokens that count, at least 1
  const Tensor& present() const { return present_; }        // [s] 1: a sequence has such tokens
  const Tensor& advantages() const { return advantages_; }  // [n]
  const Tensor& log_probs() const { return log_probs_; }    // [n]

 private:
  Tensor sequence_, starts_;
  Tensor mask_, counted_, lengths_, present_, advantages_, log_probs_;
};

}  // namespace mgpu::grpo
