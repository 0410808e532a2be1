#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace mgpu::parallel {

// Measures how long this rank is stalled by collectives: on a CPU the host thread, on a GPU the
// stream.
class Stalls {
 public:
  explicit Stalls(at::Device device);
  ~Stalls();
  Stalls(const Stalls&) = delete;
  Stalls& operator=(const Stalls&) = delete;

  // Calls `wait` and measures how long it takes. Does not itself wait for a GPU.
  void measure(const std::function<void()>& wait);

  // The seconds of stall since the last call. On a GPU it counts the waits that are over by now;
  // the others are counted by a later call.
  double take_seconds();

 private:
  struct OnGpu;
  std::unique_ptr<OnGpu> gpu_;
  double seconds_ = 0;
};

}  // namespace mgpu::parallel
