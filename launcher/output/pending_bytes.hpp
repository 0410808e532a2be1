#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace mgpu::launcher {

// Bytes on their way to a file, between one side that appends and one that writes them: one block
// is written while the next one grows. It is not a lock: the two sides need one.
class PendingBytes {
 public:
  static constexpr size_t kHighWater = 256 << 10;

  explicit PendingBytes(size_t high_water = kHighWater) : high_water_(high_water) {}

  void append(std::string_view bytes) { waiting_.append(bytes); }
  // The side that appends should stop. Twice this much is kept at most, besides what it appends
  // nevertheless.
  bool full() const { return waiting_.size() >= high_water_; }
  bool empty() const { return waiting_.empty() && writing_.empty(); }
  bool waiting() const { return !waiting_.empty(); }

  // All that waits, as the block to write. It stays valid, and empty() false, until wrote(). The
  // previous block must have been written.
  std::string_view begin_block() {
    std::swap(waiting_, writing_);
    return writing_;
  }
  void wrote() { forget(writing_); }
  void drop() {
    forget(waiting_);
    forget(writing_);
  }
  // Gives back the memory of empty blocks. False: some bytes are still to be written.
  bool release_memory() {
    if (!empty()) return false;
    waiting_.shrink_to_fit();
    writing_.shrink_to_fit();
    return true;
  }

 private:
  // A block that was far larger than usual gives its memory back.
  void forget(std::string& block) {
    block.clear();
    if (block.capacity() > 2 * high_water_) block.shrink_to_fit();
  }

  size_t high_water_;
  std::string waiting_, writing_;
};

}  // namespace mgpu::launcher
