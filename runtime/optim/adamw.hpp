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

// AdamW over what this rank owns: fp32 weights ("master") beside the ones that compute, unless
// those are fp32 themselves. Nothing here waits for the device.
class AdamW {
 public:
  // What belongs to one fragment; views of flat vectors over all that is owned.
  struct State {
    parallel::OwnedFragment* owned = nullptr;
    Tensor master;
    Moment first, second;
  };

  // Reads the weights as they are now. `owned` must outlive this.
  AdamW(std::vector<parallel::OwnedFragment>& owned, std::int64_t owned_size,
        const AdamWOptions& options);

  // One step with the gradients times `clip`, a device scalar. Nothing changes if `skip` is 1.
  void step(double learning_rate, const Tensor& clip, const Tensor& skip);

  // The sum of the squares of all gradients owned here, a device scalar.
  Tensor squared_gradient_norm() const;

  // Steps that were not skipped: what the moments' bias correction counts. Waits for the device.
  std::int64_t steps_taken() const;
  void set_steps_taken(std::int64_t steps);
  std::vector<State>& states() { return states_; }
  // Bytes of all moments held here, what lies between fragments included.
  std::int64_t moment_bytes() const { return moment_bytes_; }
  // After states were loaded: the computing weights become the master's rounding.
  void publish_master();

 private:
  void merge_spans();

  AdamWOptions options_;
  std::vector<State> states_;
  std::vector<Span> spans_;  // neighbouring fragments that decay alike: one launch
  std::int64_t moment_bytes_ = 0;
  Tensor count_;  // steps that were not skipped, fp32 on the device
};

}  // namespace mgpu::optim
