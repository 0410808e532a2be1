#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace mgpu::ops {

// Work that is done many times over with the same tensors. On a GPU it is recorded as a graph when
// it is first run, which then runs without the host's part; so it may not look at values, and what
// it makes must end in tensors that outlive it. Elsewhere it is simply done each time.
class Recording {
 public:
  // Recordings of one store share the memory of what lives within a run only: they run one after
  // the other.
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

  // When it is recorded the work is done twice on the tensors as they are.
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
