#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

// The pieces a transformer is made of, forward and backward, each as one call. On a GPU they run
// our kernels where the build has them; everywhere else the ATen composition beside them, which is
// also what the kernels are checked against. Nothing here waits for the GPU.
//
// Rows are tokens: x is [tokens, width]. Gradients of weights are added to `gw`, in gw's dtype;
// an undefined `gw` means that the weight is frozen.
namespace mgpu::ops {

using at::Tensor;

// y = w * x / rms(x), as transformers rounds it: the quotient to x's dtype, then the product.
// rstd is [tokens] in fp32 and what backward wants.
std::tuple<Tensor, Tensor> rms_norm(const Tensor& x, const Tensor& w, double eps);

// The gradient of x, plus `residual` where it is defined.
Tensor rms_norm_backward(const Tensor& gy, const Tensor& x, const Tensor& w, const Tensor& rstd,
                         const Tensor& residual, const Tensor& gw);

// x + residual, and the norm of that: sum, y, rstd.
std::tuple<Tensor, Tensor, Tensor> add_rms_norm(const Tensor& x, const Tensor& residual,
                                                const Tensor& w, double eps);

// silu(gate) * up of gate_up = [gate | up].
Tensor swiglu(const Tensor& gate_up);
Tensor swiglu_backward(const Tensor& g, const Tensor& gate_up);

// Turns the first `heads` heads of every row of qkv, in place, by their token's position: pairs are
// (i, i + head_dim / 2). cos and sin are fp32 tables [positions, head_dim / 2]. `back` turns the
// other way, which is the gradient.
void rotate_(Tensor& qkv, std::int64_t heads, std::int64_t head_dim, const Tensor& cos,
             const Tensor& sin, const Tensor& positions, bool back);

Tensor embedding(const Tensor& weight, const Tensor& tokens);
void embedding_backward(const Tensor& gy, const Tensor& tokens, const Tensor& gw);

// gw += gy^T x, summed in fp32 and kept in gw's dtype.
void add_weight_gradient(const Tensor& gy, const Tensor& x, const Tensor& gw);
// gb += the sum of gy's rows.
void add_bias_gradient(const Tensor& gy, const Tensor& gb);

// For each row of logits the loss -log softmax(logits)[target], 0 where the target is kNoTarget, in
// fp32; and whether the target is the largest. With `scale` the logits are overwritten by
// scale * d loss / d logits.
struct CrossEntropy {
  Tensor loss;     // [rows] fp32
  Tensor correct;  // [rows] bool
  Tensor entropy;  // [rows] fp32
};
CrossEntropy cross_entropy_(Tensor& logits, const Tensor& targets, const double* scale);

// For each row the log-probability of its target under softmax(logits / temperature) and the
// entropy of that, in fp32; 0 where the target is kNoTarget.
struct TokenScores {
  Tensor log_probs;
  Tensor entropies;
};
TokenScores token_scores(const Tensor& logits, const Tensor& targets, double temperature);

// The slopes of a loss by the scores of each row; fp32, the second may be undefined.
struct TokenSlopes {
  Tensor log_probs;
  Tensor entropies;
};
// The logits become that loss's gradient by them.
void token_scores_backward_(Tensor& logits, const Tensor& targets, double temperature,
                            const TokenSlopes& slopes);

}  // namespace mgpu::ops
