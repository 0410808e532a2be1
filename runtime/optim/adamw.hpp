#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "runtime/optim/adamw_step.hpp"
#include "runtime/optim/moment_vectors.hpp"
#include "runtime/optim/optimizer.hpp"

namespace mgpu::optim {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  Moments moments = Moments::fp32;
};

// AdamW over the fragments that this rank owns. It keeps fp32 master weights beside the weights
// that the model computes with, unless these are fp32 themselves. Its state is `master`, `first`
// and `second`: the master weights and the moments.
class AdamW : public Optimizer {
 public:
  // Initializes the master weights from the current weights. `owned` must outlive this object.
  AdamW(std::vector<parallel::OwnedFragment>& owned, std::int64_t owned_size,
        const AdamWOptions& options);

  void begin_step(const StepSettings& step) override;
  void update(int bucket, const StepSettings& step) override;
  Tensor squared_gradient_norm() const override;
  // The bias correction uses this number.
  std::int64_t steps_taken() const override;
  void set_steps_taken(std::int64_t steps) override;
  const std::vector<FragmentState>& states() const override { return states_; }
  void use_loaded_state() override;
  std::int64_t state_bytes() const override { return moment_bytes_; }

 private:
  AdamWOptions options_;
  std::vector<FragmentState> states_;  // views of flat vectors over all owned fragments
  std::vector<Span> all_;  // all fragments; the rounding of the norm depends on the division
  std::map<int, std::vector<Span>> of_bucket_;
  std::int64_t moment_bytes_ = 0;
  Tensor count_;  // steps that were not skipped; fp32, on the device
};

MakeOptimizer make_adamw(const AdamWOptions& options);

}  // namespace mgpu::optim
