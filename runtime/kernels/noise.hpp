#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mgpu::ops {

using at::Tensor;

// NEFTune: adds to every row of x, [tokens, width], uniform noise between -m and m, where m is
// alpha / sqrt(tokens of the row's sequence * width). `starts`: see Sequences. The noise of an
// element depends only on the seed and its place, also not on the device.
void add_noise_(Tensor& x, const Tensor& starts, double alpha, std::uint64_t seed);

}  // namespace mgpu::ops
