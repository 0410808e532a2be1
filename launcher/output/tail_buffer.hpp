#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace mgpu::launcher {

// The last bytes of a stream, at most `most`. It never holds more, and grows only as far as needed.
class TailBuffer {
 public:
  explicit TailBuffer(size_t most) : most_(most) {}

  void append(std::string_view bytes) {
    if (bytes.size() > most_) bytes.remove_prefix(bytes.size() - most_);
    const auto added = bytes.substr(0, most_ - ring_.size());
    ring_.append(added);
    bytes.remove_prefix(added.size());
    while (!bytes.empty()) {  // the ring is full: the oldest bytes are replaced
      const size_t replaced = bytes.copy(ring_.data() + oldest_, most_ - oldest_);
      oldest_ = (oldest_ + replaced) % most_;
      bytes.remove_prefix(replaced);
    }
  }

  // The last bytes, at most `count`.
  std::string last(size_t count) const {
    count = std::min(count, ring_.size());
    const size_t newest = std::min(count, oldest_);  // in the front of the ring
    std::string text(std::string_view(ring_).substr(ring_.size() - (count - newest)));
    return text.append(ring_, oldest_ - newest, newest);
  }

 private:
  size_t most_;
  std::string ring_;
  size_t oldest_ = 0;
};

}  // namespace mgpu::launcher
