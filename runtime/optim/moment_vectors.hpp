#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/kernels/moment.hpp"
#include "runtime/parallel/shards.hpp"

namespace mgpu::optim {

using at::Tensor;
using ops::Moment;

// With eight_bit, tensors of fewer elements than kFewestCoded have moments in fp32.
enum class Moments { fp32, bf16, eight_bit };
inline constexpr std::int64_t kFewestCoded = 4096;

// How both moments' codes are read.
Tensor first_moment_table(at::Device device);
Tensor second_moment_table(at::Device device);

// One moment of all that a rank owns, in a few flat vectors; zeros at first.
class MomentVectors {
 public:
  // `table` is undefined unless `moments` is eight_bit.
  MomentVectors(const std::vector<parallel::OwnedFragment>& owned, std::int64_t owned_size,
                Moments moments, const Tensor& table);

  // Of owned[i]; a view. Neighbouring fragments of a kind are as far from each other here as among
  // all that is owned.
  const Moment& operator[](std::size_t i) const { return fragments_[i]; }
  std::int64_t bytes() const;

 private:
  Tensor floats_, codes_, scales_;
  std::vector<Moment> fragments_;
};

}  // namespace mgpu::optim
