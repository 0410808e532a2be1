#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace mgpu::ops {

// Work that is repeated many times on the same tensors. On a GPU the first run() executes the work
// and then records it as a CUDA graph; later ones replay the graph without the host's part. So the
// work must not read values on the host, and its results must go to tensors that outlive it. The
// host records while the device computes what is queued; it waits for the device only if little
// memory is free. Elsewhere run() simply calls the work.
class Recording {
 public:
  // The recordings of one store share memory for temporary tensors, so they must not run at the
  // same time.
  class Store {
   public:
    explicit Store(at::Device device);
    ~Store();

   private:
    friend class Recording;
    struct Graphs;
    at::Device device_;
    std::unique_ptr<Graphs> graphs_;  // on a GPU
  };

  Recording(Store& store, std::function<void()> work);
  ~Recording();

  void run();

 private:
  struct Graph;
  void record();

  Store& store_;
  std::function<void()> work_;
  std::unique_ptr<Graph> graph_;  // on a GPU
};

}  // namespace mgpu::ops
