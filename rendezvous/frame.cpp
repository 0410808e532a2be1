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
  if (used_ != 0) {
    kept_.erase(0, used_);
    used_ = 0;
    if (kept_.empty()) kept_.shrink_to_fit();  // thousands of idle peers hold nothing
  }
  if (kept_.size() < kFrameHead) return false;
  std::uint32_t size = 0;
  for (std::size_t i = 0; i < kFrameHead; ++i)
    size |= static_cast<std::uint32_t>(static_cast<unsigned char>(kept_[i])) << (8 * i);
  if (size > limit_) throw ProtocolError(fmt::format("a frame of {} bytes is too long", size));
  if (kept_.size() < kFrameHead + size) return false;
  body = std::string_view(kept_).substr(kFrameHead, size);
  used_ = kFrameHead + size;
  return true;
}

}  // namespace mgpu::rendezvous
