#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/kernels/moment.hpp"
#include "runtime/optim/state_tensors.hpp"
#include "runtime/parallel/shards.hpp"

namespace mgpu::optim {

using at::Tensor;
using ops::Moment;

// The tables that decode the 8-bit codes of the two moments.
Tensor first_moment_table(at::Device device);
Tensor second_moment_table(at::Device device);

// One moment (first or second) of all fragments that a rank owns, in a few flat vectors. It starts
// as zeros.
class MomentVectors {
 public:
  // `table` is undefined unless `moments` is eight_bit.
  MomentVectors(const std::vector<parallel::OwnedFragment>& owned, std::int64_t owned_size,
                Moments moments, const Tensor& table);

  // The moment of owned[i], a view. Neighbouring fragments of the same format have the same
  // distance here as in the vector of all owned elements.
  const Moment& operator[](std::size_t i) const { return fragments_[i]; }
  std::int64_t bytes() const;

 private:
  Tensor floats_, codes_, scales_;
  std::vector<Moment> fragments_;
};

}  // namespace mgpu::optim
