#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace mgpu::ops {

// Work that is repeated many times on the same tensors. On a GPU the constructor records it as a
// CUDA graph, and run() replays the graph without the host's part. So the work must not read values
// on the host, and its results must go to tensors that outlive it. Elsewhere run() simply calls the
// work.
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

  // Recording runs the work twice on the tensors as they are.
  Recording(Store& store, std::function<void()> work);
  ~Recording();

  void run();

 private:
  struct Graph;
  Store& store_;
  std::function<void()> work_;
  std::unique_ptr<Graph> graph_;  // on a GPU
};

}  // namespace mgpu::ops
