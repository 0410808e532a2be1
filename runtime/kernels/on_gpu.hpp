#pragma once

#include "runtime/kernels/head_norms.hpp"
#include "runtime/kernels/moment.hpp"
#include "runtime/kernels/nf4.hpp"
#include "runtime/kernels/ops.hpp"

// The operations that our CUDA kernels implement. Each can_...() returns whether the kernel
// supports these tensors; without a CUDA compiler in the build it always returns false.
namespace mgpu::ops::on_gpu {

bool can_norm(const Tensor& x, const Tensor& w);
std::tuple<Tensor, Tensor> rms_norm(const Tensor& x, const Tensor& w, double eps);
std::tuple<Tensor, Tensor, Tensor> add_rms_norm(const Tensor& x, const Tensor& residual,
                                                const Tensor& w, double eps);
Tensor rms_norm_backward(const Tensor& gy, const Tensor& x, const Tensor& w, const Tensor& rstd,
                         const Tensor& residual, const Tensor& gw);

bool can_swiglu(const Tensor& gate_up);
Tensor swiglu(const Tensor& gate_up);
Tensor swiglu_backward_(Tensor& g, const Tensor& gate_up);

bool can_drop_out(const Tensor& x);
void drop_out(const Tensor& x, const Dropout& dropout, const Tensor& out);

bool can_rotate(const Tensor& qkv, std::int64_t head_dim);
void rotate_(const Tensor& qkv, std::int64_t heads, std::int64_t head_dim, const Tensor& cos,
             const Tensor& sin, const Tensor& positions, bool back);

bool can_norm_heads(const Tensor& qkv, const HeadNorms& norms);
void norm_heads_(const Tensor& qkv, const HeadNorms& norms, const Rotation& rotation,
                 HeadNormsSaved* saved);
void norm_heads_backward_(const Tensor& g_qkv, const HeadNorms& norms, const Rotation& rotation,
                          const HeadNormsSaved& saved, const Tensor& gq, const Tensor& gk);

// Rows of a matrix in pinned host memory, which the GPU reads itself.
bool can_look_up(const Tensor& on_host, const Tensor& rows);
Tensor look_up(const Tensor& on_host, const Tensor& rows);

bool can_cross_entropy(const Tensor& logits);
CrossEntropy cross_entropy_(const Tensor& logits, const Tensor& targets, const double* scale);
// With `slopes` the logits are overwritten by the gradient.
TokenScores token_scores_(const Tensor& logits, const Tensor& targets, double temperature,
                          const Tensor* slopes, const Tensor* entropy_slopes);

// One AdamW step for flat tensors of the same length. If the model computes with the master,
// `value` is undefined.
struct AdamWStep {
  double learning_rate, beta1, beta2, epsilon, decay;
};
bool can_adamw(const Tensor& master);
void adamw_(const AdamWStep& step, const Tensor& master, const Tensor& value, const Tensor& grad,
            const Tensor& first, const Tensor& second, const Tensor& clip, const Tensor& skip,
            const Tensor& count);
// The same with both moments in 8 bits; they must have the same lead.
void adamw_8bit_(const AdamWStep& step, const Tensor& master, const Tensor& value,
                 const Tensor& grad, const Moment& first, const Moment& second, const Tensor& clip,
                 const Tensor& skip, const Tensor& count);

bool can_dequantize(const Nf4& matrix, const Tensor& out);
void dequantize(const Nf4& matrix, const Tensor& out);

}  // namespace mgpu::ops::on_gpu
