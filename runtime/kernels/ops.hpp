#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

// The operations of a transformer, each a pair of forward and backward functions. On a GPU they run
// our kernels if the build has them, else compositions of ATen operations, which the kernels are
// also tested against. None of them waits for the GPU.
//
// Rows are tokens: x is [tokens, width]. Gradients of weights are added to `gw`, in gw's dtype; an
// undefined `gw` means that the weight is frozen.
namespace mgpu::ops {

using at::Tensor;

// y = w * x / rms(x), rounded as in transformers: first the quotient to x's dtype, then the
// product. Also returns rstd, [tokens] in fp32, which the backward needs.
std::tuple<Tensor, Tensor> rms_norm(const Tensor& x, const Tensor& w, double eps);

// Returns the gradient of x, plus `residual` if it is defined.
Tensor rms_norm_backward(const Tensor& gy, const Tensor& x, const Tensor& w, const Tensor& rstd,
                         const Tensor& residual, const Tensor& gw);

// Returns x + residual, its norm y, and rstd.
std::tuple<Tensor, Tensor, Tensor> add_rms_norm(const Tensor& x, const Tensor& residual,
                                                const Tensor& w, double eps);

// silu(gate) * up, where gate_up = [gate | up].
Tensor swiglu(const Tensor& gate_up);
// Returns the gradient of gate_up and replaces g by swiglu's output, which is not saved.
Tensor swiglu_backward_(Tensor& g, const Tensor& gate_up);

// Sets elements to 0 with a probability below 1 and divides the others by the probability of being
// kept. The same seed drops the same elements of tensors of the same shape; CPUs and GPUs drop
// different ones.
struct Dropout {
  double probability = 0;
  std::uint64_t seed = 0;
};
Tensor drop_out(const Tensor& x, const Dropout& dropout);
void drop_out_(Tensor& x, const Dropout& dropout);

// Applies the rotary embedding in place to the first `heads` heads of every row of qkv, by the
// token's position. It rotates the pairs (i, i + head_dim / 2). cos and sin are fp32 tables
// [positions, head_dim / 2]. `back` rotates in the opposite direction, which is the backward.
void rotate_(Tensor& qkv, std::int64_t heads, std::int64_t head_dim, const Tensor& cos,
             const Tensor& sin, const Tensor& positions, bool back);

// The rows of the tokens, on their device. The weight may be in host memory; a GPU reads it there
// itself if it is pinned.
Tensor embedding(const Tensor& weight, const Tensor& tokens);
void embedding_backward(const Tensor& gy, const Tensor& tokens, const Tensor& gw);

// a b, plus `bias` in each row if it is defined.
Tensor product(const Tensor& a, const Tensor& b, const Tensor& bias = {});
// out += a b
void add_product(const Tensor& out, const Tensor& a, const Tensor& b);
// a b, summed in fp32 and not rounded afterwards.
Tensor product_in_fp32(const Tensor& a, const Tensor& b);

// gw += scale gy^T x, summed in fp32 and stored in gw's dtype. With `overwrite`, gw = scale gy^T x,
// and gw may be uninitialized.
void add_weight_gradient(const Tensor& gy, const Tensor& x, const Tensor& gw, double scale = 1,
                         bool overwrite = false);
// gb += the sum of the rows of gy.
void add_bias_gradient(const Tensor& gy, const Tensor& gb);

// For each row of logits: the loss -log softmax(logits)[target], whether the target is the largest
// logit, and the entropy; all 0 where the target is kNoTarget. If `scale` is not null, the logits
// are overwritten by scale * d loss / d logits.
struct CrossEntropy {
  Tensor loss;     // [rows] fp32
  Tensor correct;  // [rows] bool
  Tensor entropy;  // [rows] fp32
};
CrossEntropy cross_entropy_(Tensor& logits, const Tensor& targets, const double* scale);

// For each row: the log-probability of its target under softmax(logits / temperature), and the
// entropy of this distribution. Both are in fp32, and 0 where the target is kNoTarget.
struct TokenScores {
  Tensor log_probs;
  Tensor entropies;
};
TokenScores token_scores(const Tensor& logits, const Tensor& targets, double temperature);

// The derivatives of a loss with respect to the scores of each row, in fp32. `entropies` may be
// undefined.
struct TokenSlopes {
  Tensor log_probs;
  Tensor entropies;
};
// Overwrites the logits by the loss's gradient with respect to them. Returns the rows' scores.
TokenScores token_scores_backward_(Tensor& logits, const Tensor& targets, double temperature,
                                   const TokenSlopes& slopes);

}  // namespace mgpu::ops
