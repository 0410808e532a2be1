#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace mgpu::rendezvous {

// Frames are how messages travel over a stream: a length of four bytes, least first, and that many
// bytes.
inline constexpr std::size_t kFrameHead = 4;

void put_frame(std::string& out, std::string_view body);

// Takes frames out of a stream of bytes as it comes.
class FrameReader {
 public:
  // The longest body that is taken.
  void limit(std::size_t bytes) { limit_ = bytes; }
  void add(std::string_view bytes) { kept_.append(bytes); }
  // The next whole body, valid until the next call; false: more bytes are needed. Throws
  // ProtocolError for a length beyond the limit.
  bool next(std::string_view& body);
  bool empty() const { return kept_.size() == used_; }

 private:
  std::size_t limit_ = 4 << 10;
  std::string kept_;
  std::size_t used_ = 0;
};

}  // namespace mgpu::rendezvous
