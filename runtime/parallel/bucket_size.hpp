#pragma once

#include <cstdint>

namespace mgpu::parallel {

// Elements of a bucket of gradients if the recipe sets none: large enough to use the network's
// bandwidth, and small enough that reducing the last bucket, which no computation hides, is short.
// Does not need LibTorch: the memory model computes with it.
inline constexpr std::int64_t kDefaultBucketElements = 32 << 20;

}  // namespace mgpu::parallel
