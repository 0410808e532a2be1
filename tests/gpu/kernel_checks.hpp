#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace mgpu::gpu_test {

// Prints the relative difference of a result and what is wanted; more than `limit` is a failure of
// the whole program. In kernels_check.cpp.
void compare(const std::string& what, const at::Tensor& gpu, const at::Tensor& wanted,
             double limit);
// Prints whether something holds; if not, the whole program fails.
void require(const std::string& what, bool holds);

// On the CPU, in fp32.
at::Tensor reference(const at::Tensor& x);
const char* name_of(at::ScalarType type);

// Attention by each implementation that there is for this type.
void check_attentions(at::ScalarType type);

// What generation needs; frequencies are compared with those of the sampler on the host.
void check_paged_attention(at::ScalarType type, double limit);
void check_sampling(at::ScalarType type, double limit);
void check_frequencies();

// Weights in 4 and 8 bits, dequantized to a type; noise of that type.
void check_formats(at::ScalarType type);

// One step of AdamW with moments in fp32 and in bf16, for weights of a type.
void check_adamw(at::ScalarType weights);
// The same with moments in 8 bits, for all types of weights.
void check_adamw_8bit();

// The parts of LoRA adapters in decoding: what is added to outputs, and the products for it beside
// those of the layers.
void check_low_rank_products(at::ScalarType type, double limit);
void check_low_rank(at::ScalarType type, double limit);

}  // namespace mgpu::gpu_test
