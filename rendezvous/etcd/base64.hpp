#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mgpu::rendezvous::etcd {

// Base64 with padding, as JSON carries the bytes of protocol buffers.
std::string to_base64(std::string_view bytes);

// Nothing when it is not base64 with padding: neither line breaks nor other alphabets.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace mgpu::rendezvous::etcd
