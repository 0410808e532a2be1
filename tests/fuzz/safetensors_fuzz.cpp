#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>

#include "runtime/checkpoint/safetensors.hpp"

using namespace mgpu::checkpoint;

// The bytes of a file are rejected with one short line that names it, or give tensors that cover
// the data exactly.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const auto file = std::as_bytes(std::span(bytes, size));
  SafetensorsLayout layout;
  try {
    layout = read_layout(file, "f");
  } catch (const std::runtime_error& e) {
    const std::string message = e.what();
    if (!message.starts_with("f") || message.size() > 1000) std::abort();
    if (message.find('\n') != message.npos || message.find('\0') != message.npos) std::abort();
    return 0;
  }
  std::size_t at = 0;
  for (const TensorEntry& entry : layout.entries) {
    if (entry.begin != at || entry.end < entry.begin) std::abort();
    if (bytes_needed(entry.dtype, entry.shape) != entry.end - entry.begin) std::abort();
    at = entry.end;
  }
  if (layout.data_begin + at != size) std::abort();
  return 0;
}
