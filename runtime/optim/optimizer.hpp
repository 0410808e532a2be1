#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/kernels/moment.hpp"
#include "runtime/parallel/shards.hpp"

namespace mgpu::optim {

using at::Tensor;
using ops::Moment;

// One vector of the state of a fragment: a value per element, in any format that a moment can have.
struct StateVector {
  std::string_view name;  // of its tensors in checkpoints
  Moment stored;
  // The table that decodes its 8-bit codes. Null: it never has codes.
  Tensor (*levels)(at::Device) = nullptr;
};

// What an optimizer keeps for one fragment: the master weights, and its other vectors.
struct FragmentState {
  parallel::OwnedFragment* owned = nullptr;
  std::vector<StateVector> vectors;

  // Throws std::out_of_range if there is no vector of this name.
  const Moment& at(std::string_view name) const;
};

// What a step needs. `clip` and `skip` are scalars on the device.
struct StepSettings {
  double learning_rate = 0;
  Tensor clip;  // the factor of the gradients
  Tensor skip;  // 1: nothing changes
};

// An optimizer of the fragments that this rank owns. It holds their state, which checkpoints save
// and restore by name; state_tensors.hpp describes what that takes per weight. Only steps_taken()
// waits for the device.
class Optimizer {
 public:
  Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  // A step is begin_step(), and then update() for each bucket in ascending order, which updates the
  // fragments of its bucket.
  virtual void begin_step(const StepSettings& step) = 0;
  virtual void update(int bucket, const StepSettings& step) = 0;

  // The sum of the squares of all owned gradients, a scalar on the device.
  virtual Tensor squared_gradient_norm() const = 0;

  // The number of steps that were not skipped. Waits for the device.
  virtual std::int64_t steps_taken() const = 0;
  virtual void set_steps_taken(std::int64_t steps) = 0;

  // The state of every owned fragment, in order: views of the optimizer's memory. Code that writes
  // to them calls use_loaded_state() afterwards.
  virtual const std::vector<FragmentState>& states() const = 0;
  // Sets the weights that the model computes with to the rounded master weights.
  virtual void use_loaded_state() = 0;

  // Bytes of the state on this rank without the master weights, including unused elements.
  virtual std::int64_t state_bytes() const = 0;
};

// Creates an optimizer whose master weights start as the current weights. `owned` must outlive it.
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(
    std::vector<parallel::OwnedFragment>& owned, std::int64_t owned_size)>;

}  // namespace mgpu::optim
