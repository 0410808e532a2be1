#include "runtime/train/host_buffer.hpp"

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <utility>

#include "runtime/data/parallel.hpp"

namespace mgpu::train {
namespace {

// The kernel clears the pages when they are used first, which takes longest: several threads do it.
void fill_pages(std::byte* data, std::uint64_t size) {
  constexpr std::uint64_t kPart = std::uint64_t{64} << 20, kPage = 4096;
  const auto parts = static_cast<std::size_t>((size + kPart - 1) / kPart);
  data::for_each_index(parts, 0, [&](std::size_t part) {
    const auto begin = part * kPart;
    for (auto at = begin; at < begin + kPart && at < size; at += kPage)
      static_cast<volatile std::byte*>(data)[at] = std::byte{0};
  });
}

}  // namespace

bool HostBuffer::reserve(std::uint64_t size) {
  if (size <= size_) return true;
  release();
  void* const memory =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  ::madvise(memory, size, MADV_HUGEPAGE);  // fewer pages to pin
  ::madvise(memory, size, MADV_DONTFORK);  // else writing after a fork would move pinned pages
  fill_pages(static_cast<std::byte*>(memory), size);
  if (pinned_ && cudaHostRegister(memory, size, cudaHostRegisterDefault) != cudaSuccess) {
    cudaGetLastError();  // it is handled here
    ::munmap(memory, size);
    return false;
  }
  data_ = static_cast<std::byte*>(memory);
  size_ = size;
  return true;
}

void HostBuffer::release() {
  if (data_ == nullptr) return;
  if (pinned_) cudaHostUnregister(data_);
  ::munmap(std::exchange(data_, nullptr), std::exchange(size_, 0));
}

}  // namespace mgpu::train
