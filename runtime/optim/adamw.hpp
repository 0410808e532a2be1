#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/optim/adamw_step.hpp"
#include "runtime/optim/moment_vectors.hpp"
#include "runtime/parallel/shards.hpp"

namespace mgpu::optim {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  Moments moments = Moments::fp32;
};

// AdamW over the fragments that this rank owns. It keeps fp32 master weights beside the weights
// that the model computes with, unless these are fp32 themselves. Only steps_taken() waits for the
// device.
class AdamW {
 public:
  // The state of one fragment: views of flat vectors over all owned fragments.
  struct State {
    parallel::OwnedFragment* owned = nullptr;
    Tensor master;
    Moment first, second;
  };

  // Initializes the master weights from the current weights. `owned` must outlive this object.
  AdamW(std::vector<parallel::OwnedFragment>& owned, std::int64_t owned_size,
        const AdamWOptions& options);

  // Takes one step with the gradients multiplied by `clip`. Changes nothing if `skip` is 1. Both
  // are scalars on the device.
  void step(double learning_rate, const Tensor& clip, const Tensor& skip);

  // The sum of the squares of all owned gradients, a scalar on the device.
  Tensor squared_gradient_norm() const;

  // The number of steps that were not skipped, which the bias correction uses. Waits for the
  // device.
  std::int64_t steps_taken() const;
  void set_steps_taken(std::int64_t steps);
  std::vector<State>& states() { return states_; }
  // Bytes of all moments on this rank, including the padding between fragments.
  std::int64_t moment_bytes() const { return moment_bytes_; }
  // Call after loading states: sets the weights that the model computes with to the rounded master
  // weights.
  void copy_master_to_weights();

 private:
  void merge_spans();

  AdamWOptions options_;
  std::vector<State> states_;
  std::vector<Span> spans_;  // neighbouring fragments with the same decay, updated by one launch
  std::int64_t moment_bytes_ = 0;
  Tensor count_;  // steps that were not skipped; fp32, on the device
};

}  // namespace mgpu::optim
