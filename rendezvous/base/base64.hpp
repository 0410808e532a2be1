#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mgpu::rendezvous {

// Base64 with padding, the JSON encoding of bytes in protocol buffers.
std::string to_base64(std::string_view bytes);

// Nothing if the text is not base64 with padding; line breaks and other alphabets are rejected.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace mgpu::rendezvous
