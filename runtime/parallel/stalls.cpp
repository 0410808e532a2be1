#include "runtime/parallel/stalls.hpp"

#include <ATen/cuda/CUDAEvent.h>

#include <chrono>
#include <deque>
#include <utility>

namespace mgpu::parallel {

struct Stalls::OnGpu {
  struct Pair {
    at::cuda::CUDAEvent begin{cudaEventDefault}, end{cudaEventDefault};
  };
  std::deque<std::unique_ptr<Pair>> under_way, spare;

  std::unique_ptr<Pair> take() {
    if (spare.empty()) return std::make_unique<Pair>();
    auto pair = std::move(spare.back());
    spare.pop_back();
    return pair;
  }
};

Stalls::Stalls(at::Device device) {
  if (device.is_cuda()) gpu_ = std::make_unique<OnGpu>();
}

Stalls::~Stalls() = default;

void Stalls::measure(const std::function<void()>& wait) {
  if (gpu_) {
    auto pair = gpu_->take();
    pair->begin.record();
    wait();
    pair->end.record();
    gpu_->under_way.push_back(std::move(pair));
    return;
  }
  const auto begin = std::chrono::steady_clock::now();
  wait();
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double Stalls::take_seconds() {
  while (gpu_ && !gpu_->under_way.empty() && gpu_->under_way.front()->end.query()) {
    auto pair = std::move(gpu_->under_way.front());
    gpu_->under_way.pop_front();
    seconds_ += pair->begin.elapsed_time(pair->end) * 1e-3;
    gpu_->spare.push_back(std::move(pair));
  }
  return std::exchange(seconds_, 0.0);
}

}  // namespace mgpu::parallel
