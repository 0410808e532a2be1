#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "runtime/kernels/nf4.hpp"
#include "runtime/model/layout.hpp"

namespace mgpu::model {

using at::Tensor;

// An adapter of some rows [begin, begin + size) of a linear layer's output: += scale * b a x.
struct Adapter {
  Tensor a, b;  // [rank, in], [size, rank]
  std::int64_t begin = 0;
  std::int64_t size = 0;
};

// A linear layer, or several that read the same input. As gradients: undefined where frozen.
struct Linear {
  Tensor weight;                 // [out, in]; undefined if it is kept in 4 bits
  std::vector<ops::Nf4> packed;  // its rows in 4 bits, a matrix for each layer
  Tensor bias;                   // [out] or undefined
  std::vector<Adapter> adapters;
  Tensor all_a;  // the adapters' a, one matrix
  Tensor all_b;  // the adapters' b in one matrix [out, all ranks], zero elsewhere; for speed only
};

struct Block {
  Tensor input_norm, post_norm;
  Tensor q_norm, k_norm;  // undefined in most families
  Linear qkv, o, gate_up, down;
};

// A unit's tensors by their part in the arithmetic; those of other units are undefined. The same
// type serves for weights and for their gradients.
struct Unit {
  Tensor embedding;
  Block block;
  Tensor last_norm, head;
};

// Views into the unit's flat buffers; an undefined buffer gives undefined tensors.
struct UnitMemory {
  Tensor trained, frozen, packed;
};
Unit bind(const ModelConfig& config, const UnitLayout& layout, int unit, const UnitMemory& memory);

// Who keeps the weights and takes their gradients. The model asks for a unit when it needs it and
// says when it is done; whether that gathers, copies or does nothing is the keeper's affair.
class WeightProvider {
 public:
  virtual ~WeightProvider() = default;
  virtual const Unit& weights(int unit) = 0;  // valid until release
  virtual void release(int unit) = 0;
  virtual void prefetch(int unit) = 0;          // it will be asked for next
  virtual const Unit& gradients(int unit) = 0;  // add to these
  virtual void gradients_done(int unit) = 0;    // of this micro-batch
};

}  // namespace mgpu::model
