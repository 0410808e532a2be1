#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace mgpu::rendezvous {

// Frames are how messages travel over a stream: a length of four bytes, least first, and that many
// bytes.
inline constexpr std::size_t kFrameHeaderBytes = 4;

void put_frame(std::string& out, std::string_view body);

// Takes frames out of a stream of bytes as it comes.
class FrameReader {
 public:
  // The longest body that is taken.
  void limit(std::size_t bytes) { limit_ = bytes; }
  void add(std::string_view bytes) { buffer_.append(bytes); }
  // The next whole body, valid until the next call; false: more bytes are needed. Throws
  // ProtocolError for a length beyond the limit.
  bool next(std::string_view& body);
  bool empty() const { return buffer_.size() == consumed_; }

 private:
  std::size_t limit_ = 4 << 10;
  std::string buffer_;
  std::size_t consumed_ = 0;
};

}  // namespace mgpu::rendezvous
