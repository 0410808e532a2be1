#include "runtime/parallel/update_stream.hpp"

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <chrono>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

namespace mgpu::parallel {
namespace {

// Longer than the forward pass of a unit.
constexpr auto kLate = std::chrono::milliseconds(5);

}  // namespace

UpdateOrder update_order(std::string_view name) {
  if (name.empty() || name == "at_once") return UpdateOrder::at_once;
  if (name == "beside") return UpdateOrder::beside;
  if (name == "late") return UpdateOrder::late;
  throw std::runtime_error(
      fmt::format("unknown order of updates: {}; use at_once, beside or late", name));
}

struct UpdateStream::OnGpu {
  explicit OnGpu(at::Device device) : side(c10::cuda::getStreamFromPool(false, device.index())) {}

  c10::cuda::CUDAStream side;
  std::optional<c10::cuda::CUDAStream> training;  // of begin()
  at::cuda::CUDAEvent begin;
  std::map<int, at::cuda::CUDAEvent> updated;  // by bucket
};

UpdateStream::UpdateStream(at::Device device, UpdateOrder order)
    : order_(order == UpdateOrder::beside && !device.is_cuda() ? UpdateOrder::at_once : order) {
  if (order_ != UpdateOrder::at_once && device.is_cuda()) gpu_ = std::make_unique<OnGpu>(device);
}

UpdateStream::~UpdateStream() {
  if (gpu_) cudaStreamSynchronize(gpu_->side.stream());  // its memory may be freed from now on
}

void UpdateStream::begin() {
  wait();
  if (!gpu_) return;
  gpu_->training = c10::cuda::getCurrentCUDAStream();
  gpu_->begin.record(*gpu_->training);
  gpu_->begin.block(gpu_->side);
}

void UpdateStream::run(int bucket, std::function<void()> update) {
  if (order_ == UpdateOrder::at_once) return update();
  if (gpu_) {
    const c10::cuda::CUDAStreamGuard guard(gpu_->side);
    if (order_ == UpdateOrder::late)
      C10_CUDA_CHECK(cudaLaunchHostFunc(
          gpu_->side.stream(), [](void*) { std::this_thread::sleep_for(kLate); }, nullptr));
    update();
    gpu_->updated[bucket].record(gpu_->side);
  }
  queued_.emplace(bucket, std::move(update));
}

void UpdateStream::wait(int bucket) {
  const auto end = queued_.upper_bound(bucket);
  if (end == queued_.begin()) return;
  if (gpu_) {
    const auto current = c10::cuda::getCurrentCUDAStream();
    gpu_->updated.at(std::prev(end)->first).block(current);
    if (current == *gpu_->training) queued_.erase(queued_.begin(), end);
    return;
  }
  while (!queued_.empty() && queued_.begin()->first <= bucket)
    queued_.extract(queued_.begin()).mapped()();
}

}  // namespace mgpu::parallel
