#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace mgpu::parallel {

// How long this rank stands still for collectives: a CPU rank's host, a GPU's stream.
class Stalls {
 public:
  explicit Stalls(at::Device device);
  ~Stalls();
  Stalls(const Stalls&) = delete;
  Stalls& operator=(const Stalls&) = delete;

  // Calls `wait` and measures it. Nothing here waits for a GPU.
  void around(const std::function<void()>& wait);

  // Seconds since the last call; on a GPU of the waits that are over by now, the others' come with
  // a later call.
  double take_seconds();

 private:
  struct OnGpu;
  std::unique_ptr<OnGpu> gpu_;
  double seconds_ = 0;
};

}  // namespace mgpu::parallel
