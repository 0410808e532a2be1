#include "runtime/train/device.hpp"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "rendezvous/base/small_file.hpp"
#include "runtime/config/planning/memory_advice.hpp"
#include "runtime/kernels/capability.hpp"
#include "runtime/train/gpu_support.hpp"

namespace mgpu::train {
namespace {

// Tensors on a CPU are allocated by malloc, which gives freed memory back to the kernel as soon as
// enough of it lies at the end of the heap. Where that happens in each step, the kernel has to
// provide the same pages anew each time: 16 % of the time of a small model.
void keep_freed_memory() {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

// LibTorch only warns of a driver that is too old, and counts no GPUs.
void require_new_driver() {
  const char* const visible = ::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr && (*visible == '\0' || std::string_view(visible).starts_with("-1")))
    return;
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaErrorInsufficientDriver) return;
  cudaGetLastError();  // forget it
  int driver = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0)
    throw std::runtime_error(old_driver(driver, CUDART_VERSION));
}

void require_supported(at::Device device) {
  const Gpu gpu{device.index(), device_name(device), ops::capability_of(device)};
  const auto reason = unsupported_gpu(gpu, ops::compiled_architectures(), CUDART_VERSION / 1000);
  if (!reason.empty()) throw std::runtime_error(reason);
}

at::ScalarType bf16_of(Dtype wanted, at::Device device) {
  if (!device.is_cuda() || ops::is_ampere_or_newer(device)) return at::kBFloat16;
  if (wanted == Dtype::automatic) return at::kHalf;
  const int capability = ops::capability_of(device);
  throw std::runtime_error(
      fmt::format("dtype: bf16 needs compute capability 8.0, and GPU {} ({}) has {}.{}; set dtype: "
                  "auto or fp16",
                  device.index(), device_name(device), capability / 10, capability % 10));
}

}  // namespace

int visible_gpus() {
  static const int gpus = [] {
    require_new_driver();
    return static_cast<int>(c10::cuda::device_count());
  }();
  return gpus;
}

int gpu_of(int local_rank) {
  return local_rank % std::max(1, visible_gpus());
}

at::Device take_device(int number, bool gpu) {
  if (!gpu) {
    keep_freed_memory();
    return at::kCPU;
  }
  const auto index = static_cast<c10::DeviceIndex>(number);
  require_supported({at::kCUDA, index});
  c10::cuda::set_device(index);
  at::globalContext().lazyInitDevice(at::kCUDA);  // the allocator's statistics exist from now on
  return {at::kCUDA, index};
}

at::ScalarType compute_dtype(Dtype wanted, at::Device device) {
  switch (wanted) {
    case Dtype::automatic:
      return device.is_cuda() ? bf16_of(wanted, device) : at::kFloat;
    case Dtype::bf16:
      return bf16_of(wanted, device);
    case Dtype::fp16:
      return at::kHalf;
    case Dtype::fp32:
      return at::kFloat;
  }
  throw std::logic_error("unknown dtype");
}

std::string device_name(at::Device device) {
  if (!device.is_cuda()) return "cpu";
  return at::cuda::getDeviceProperties(device.index())->name;
}

void wait_for(at::Device device) {
  if (device.is_cuda()) c10::cuda::device_synchronize();
}

bool is_out_of_memory(const std::exception& error) {
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
         reports_out_of_memory(error.what());
}

void release_unused_memory(at::Device device) {
  if (device.is_cuda())
    c10::cuda::CUDACachingAllocator::emptyCache();
  else
    ::malloc_trim(0);
}

std::int64_t peak_memory(at::Device device) {
  if (device.is_cuda())
    return c10::cuda::CUDACachingAllocator::getDeviceStats(device.index()).allocated_bytes[0].peak;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024L;
}

DeviceMemory device_memory(at::Device device) {
  DeviceMemory memory;
  if (device.is_cuda()) {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
    memory.allocated = stats.allocated_bytes[0].current;
    memory.peak_allocated = stats.allocated_bytes[0].peak;
    memory.reserved = stats.reserved_bytes[0].current;
    memory.peak_reserved = stats.reserved_bytes[0].peak;
    std::size_t free = 0;
    std::size_t total = 0;
    if (cudaMemGetInfo(&free, &total) == cudaSuccess) {
      memory.total = static_cast<std::int64_t>(total);
      memory.used = static_cast<std::int64_t>(total - free);
    }
    return memory;
  }
  const auto page = ::sysconf(_SC_PAGESIZE);
  long size = 0;
  long resident = 0;
  std::istringstream(rendezvous::read_kernel_file("/proc/self/statm").value_or("")) >> size >>
      resident;
  memory.allocated = memory.reserved = memory.used = resident * page;
  memory.peak_allocated = memory.peak_reserved = peak_memory(device);
  memory.total = ::sysconf(_SC_PHYS_PAGES) * page;
  return memory;
}

}  // namespace mgpu::train
