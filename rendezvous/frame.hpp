#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace mgpu::rendezvous {

// A frame carries one message over a byte stream: a length of four bytes, little-endian, and that
// many bytes.
inline constexpr std::size_t kFrameHeaderBytes = 4;

void put_frame(std::string& out, std::string_view body);

// Extracts frames from a byte stream that arrives in pieces.
class FrameReader {
 public:
  // The longest body that is accepted.
  void limit(std::size_t bytes) { limit_ = bytes; }
  void add(std::string_view bytes) { buffer_.append(bytes); }
  // Returns the next complete body, valid until the next call. False: more bytes are needed.
  // Throws ProtocolError if a length exceeds the limit.
  bool next(std::string_view& body);
  bool empty() const { return buffer_.size() == consumed_; }

 private:
  std::size_t limit_ = 4 << 10;
  std::string buffer_;
  std::size_t consumed_ = 0;
};

}  // namespace mgpu::rendezvous
