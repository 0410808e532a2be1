#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace mgpu::ops {

using at::Tensor;

// Moves tensors of one device to host memory and back. On a GPU the copies run on a stream of their
// own, beside what the current stream computes, and nothing waits for the host. On a CPU they are
// plain copies.
class HostCopies {
 public:
  explicit HostCopies(at::Device device);
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;
  ~HostCopies();

  // Begins to copy x, as the current stream leaves it, to pinned memory. The caller may drop x: its
  // memory is not used again before it is copied. x must not be changed until then.
  Tensor to_host(const Tensor& x);

  // Begins to copy what to_host() returned back.
  void begin_return(const Tensor& on_host);
  // The tensor whose copy began last; work on the current stream waits for it.
  Tensor take();

 private:
  struct Side;  // of a GPU
  at::Device device_;
  std::unique_ptr<Side> side_;
  Tensor returning_;
};

}  // namespace mgpu::ops
