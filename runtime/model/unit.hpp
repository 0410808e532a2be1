#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <variant>
#include <vector>

#include "runtime/kernels/fp8.hpp"
#include "runtime/kernels/int8.hpp"
#include "runtime/kernels/nf4.hpp"
#include "runtime/model/layout.hpp"
#include "runtime/model/linear_layers.hpp"

namespace mgpu::model {

using at::Tensor;

// A LoRA adapter for the outputs [begin, begin + size) of a linear layer: y += scale * b a x. With
// DoRA these outputs are then multiplied by magnitude / length of the row of W + scale * b a.
struct Adapter {
  Tensor a, b;       // [rank, in], [size, rank]
  Tensor magnitude;  // [size]; undefined without DoRA
  std::int64_t begin = 0;
  std::int64_t size = 0;
};

// A quantized matrix.
using PackedMatrix = std::variant<ops::Nf4, ops::Int8, ops::Fp8>;

// One linear layer, or several that read the same input. The same type holds the gradients; those
// of frozen tensors are undefined.
struct Linear {
  Tensor weight;                     // [out, in]; undefined if it is quantized
  bool in_fp8 = false;               // the products with `weight` are in fp8, not its gradient
  bool fresh = false;                // of gradients: `weight` is uninitialized, to be overwritten
  std::vector<PackedMatrix> packed;  // the quantized weight, one matrix per layer
  Tensor bias;                       // [out] or undefined
  std::vector<Adapter> adapters;
  Tensor all_a;  // the adapters' `a` as one matrix
  // Optional, for speed: the adapters' `b` as one matrix [out, all ranks], 0 elsewhere.
  Tensor all_b;
  // With DoRA, optional, for speed: see factors_of().
  Tensor factors;

  bool dora() const { return !adapters.empty() && adapters.front().magnitude.defined(); }
};

struct Block {
  Tensor input_norm, post_norm;
  Tensor q_norm, k_norm;         // undefined in most families
  Linear qkv, o, gate_up, down;  // one per Product

  std::array<Linear*, kProducts> linears() { return {&qkv, &o, &gate_up, &down}; }
  std::array<const Linear*, kProducts> linears() const { return {&qkv, &o, &gate_up, &down}; }
};

// The tensors of one unit (see UnitLayout) by their role; those of other units are undefined. The
// same type holds weights and gradients.
struct Unit {
  Tensor embedding;
  Block block;
  Tensor last_norm, head;
  bool fresh_head = false;  // of gradients: those of the head (which may be the embedding) are
                            // uninitialized, to be overwritten
};

// A unit's flat buffers. bind() returns views into them; an undefined buffer gives undefined
// tensors.
struct UnitMemory {
  Tensor trained, frozen, packed;
};
Unit bind(const ModelConfig& config, const UnitLayout& layout, int unit, const UnitMemory& memory);

// Prepares the gradients of a unit, views into the uninitialized `flat`, for a first micro-batch:
// marks those as fresh that backward computes as one matrix product, and sets all others to 0.
void begin_gradients(const ModelConfig& config, Unit& gradients, const Tensor& flat);
// Marks none as fresh: backward adds to what is there.
void continue_gradients(Unit& gradients);

// Gives the model access to its weights and gradients, one unit at a time. The model calls these
// functions around its use of a unit; whether they gather, copy or do nothing is up to the
// implementation (parallel::Shards).
class WeightProvider {
 public:
  virtual ~WeightProvider() = default;
  // The weights of a unit. They are valid until the matching release().
  virtual const Unit& weights(int unit) = 0;
  virtual void release(int unit) = 0;
  // Announces that this unit's weights are needed next.
  virtual void prefetch(int unit) = 0;
  // Where the model adds the gradients of a unit.
  virtual const Unit& gradients(int unit) = 0;
  // The gradients of this unit are complete for this micro-batch.
  virtual void gradients_done(int unit) = 0;
};

}  // namespace mgpu::model
