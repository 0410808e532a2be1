#include "runtime/kernels/recording.hpp"

#include <exception>
#include <utility>

#ifdef MGPU_CUDA
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#endif

namespace mgpu::ops {

#ifdef MGPU_CUDA

namespace {

// Graphs cannot be recorded on the default stream. All recordings use the same stream, because the
// allocator reuses memory freed on a stream only for this stream.
c10::cuda::CUDAStream recording_stream(at::Device device) {
  static thread_local std::unique_ptr<c10::cuda::CUDAStream> stream;
  if (!stream || stream->device() != device)
    stream = std::make_unique<c10::cuda::CUDAStream>(
        c10::cuda::getStreamFromPool(false, device.index()));
  return *stream;
}

// While recording, the allocator cannot release cached memory, so release it before if little is
// free.
void make_room() {
  constexpr std::size_t kEnough = std::size_t{1} << 30;
  std::size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) == cudaSuccess && free < kEnough)
    c10::cuda::CUDACachingAllocator::emptyCache();
}

// Makes another stream the current one. Its work comes after what is queued on the stream before,
// and before what is queued there afterwards, also after an exception.
class Detour {
 public:
  explicit Detour(c10::cuda::CUDAStream stream)
      : before_(c10::cuda::getCurrentCUDAStream(stream.device_index())), guard_(stream) {
    event_.record(before_);
    event_.block(stream);
  }
  Detour(const Detour&) = delete;
  Detour& operator=(const Detour&) = delete;
  ~Detour() {
    try {
      event_.record(guard_.current_stream());
      event_.block(before_);
    } catch (const std::exception&) {
      // The device has failed: nothing runs any more, and the next call reports it.
    }
  }

 private:
  c10::cuda::CUDAStream before_;
  at::cuda::CUDAEvent event_;
  c10::cuda::CUDAStreamGuard guard_;
};

// After an exception: the stream and the allocator leave the capture, so that what follows, such as
// the report of the exception's cause, can use the device.
void end_in_vain(at::cuda::CUDAGraph& graph) {
  try {
    graph.capture_end();
  } catch (const std::exception&) {  // what was recorded so far is no graph
  }
}

}  // namespace

struct Recording::Store::Graphs {
  // The allocator keeps the graphs' memory, and nothing else can use it: release it.
  ~Graphs() {
    if (used) c10::cuda::CUDACachingAllocator::emptyCache(pool);
  }

  bool used = false;
  at::cuda::MempoolId_t pool;  // freed with the last graph that uses it
  int users = 0;
};

struct Recording::Graph {
  explicit Graph(Store::Graphs& store) : store_(store) {
    if (store_.users++ == 0) store_.pool = at::cuda::graph_pool_handle();
    store_.used = true;
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { --store_.users; }

  at::cuda::CUDAGraph graph;

 private:
  Store::Graphs& store_;
};

Recording::Store::Store(at::Device device)
    : device_(device), graphs_(device.is_cuda() ? std::make_unique<Graphs>() : nullptr) {}

void Recording::run() {
  if (graph_) {
    graph_->graph.replay();
    return;
  }
  if (!store_.graphs_) {
    work_();
    return;
  }
  {
    // Libraries allocate their workspaces at the first call on a stream.
    const Detour detour(recording_stream(store_.device_));
    work_();
  }
  record();
}

// The work is not executed meanwhile.
void Recording::record() {
  make_room();
  const c10::cuda::CUDAStreamGuard guard(recording_stream(store_.device_));
  auto graph = std::make_unique<Graph>(*store_.graphs_);
  // Thread-local mode: other threads, such as the watchdog of collectives, keep calling the driver.
  graph->graph.capture_begin(store_.graphs_->pool, cudaStreamCaptureModeThreadLocal);
  try {
    work_();
  } catch (...) {
    end_in_vain(graph->graph);
    throw;
  }
  graph->graph.capture_end();
  graph_ = std::move(graph);
}

#else

struct Recording::Store::Graphs {};
struct Recording::Graph {};

Recording::Store::Store(at::Device device) : device_(device) {}

void Recording::run() {
  work_();
}

#endif

Recording::Store::~Store() = default;

Recording::Recording(Store& store, std::function<void()> work)
    : store_(store), work_(std::move(work)) {}
Recording::~Recording() = default;

}  // namespace mgpu::ops
