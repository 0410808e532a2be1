#include "rendezvous/frame.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>

#include "rendezvous/protocol.hpp"

namespace mgpu::rendezvous {

void put_frame(std::string& out, std::string_view body) {
  const auto size = static_cast<std::uint32_t>(body.size());
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(size >> shift);
  out.append(body);
}

bool FrameReader::next(std::string_view& body) {
  if (consumed_ != 0) {
    buffer_.erase(0, consumed_);
    consumed_ = 0;
    if (buffer_.empty()) buffer_.shrink_to_fit();  // thousands of idle peers hold no buffer
  }
  if (buffer_.size() < kFrameHeaderBytes) return false;
  std::uint32_t size = 0;
  for (std::size_t i = 0; i < kFrameHeaderBytes; ++i)
    size |= static_cast<std::uint32_t>(static_cast<unsigned char>(buffer_[i])) << (8 * i);
  if (size > limit_) throw ProtocolError(fmt::format("a frame of {} bytes is too long", size));
  if (buffer_.size() < kFrameHeaderBytes + size) return false;
  body = std::string_view(buffer_).substr(kFrameHeaderBytes, size);
  consumed_ = kFrameHeaderBytes + size;
  return true;
}

}  // namespace mgpu::rendezvous
