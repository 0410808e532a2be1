#pragma once

#include <cstddef>
#include <cstdint>

namespace mgpu::train {

// A large piece of host memory that is kept: for a GPU it is pinned, so that copies reach the speed
// of the bus. (LibTorch's allocator of pinned memory rounds sizes up to a power of 2.)
class HostBuffer {
 public:
  explicit HostBuffer(bool pinned) : pinned_(pinned) {}
  ~HostBuffer() { release(); }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  // Makes it at least this large; its contents are lost if it grows. All pages are in memory
  // afterwards. Returns false if the system refuses: then the buffer is empty.
  bool reserve(std::uint64_t size);
  void release();

  std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }

 private:
  bool pinned_;
  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace mgpu::train
