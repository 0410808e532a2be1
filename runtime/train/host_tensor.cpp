#include "runtime/train/host_tensor.hpp"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <memory>
#include <stdexcept>

#include "runtime/train/host_buffer.hpp"

namespace mgpu::train {

at::Tensor host_tensor(std::int64_t elements, at::ScalarType type, bool pinned) {
  const auto bytes = static_cast<std::uint64_t>(elements) * c10::elementSize(type);
  const auto buffer = std::make_shared<HostBuffer>(pinned);
  if (!buffer->reserve(bytes))
    throw std::runtime_error(
        fmt::format("cannot allocate {:.1f} GiB of {}host memory for the embedding; use "
                    "offload_embedding: false, or free host memory",
                    static_cast<double>(bytes) / (1 << 30), pinned ? "pinned " : ""));
  return at::from_blob(buffer->data(), {elements}, [buffer](void*) {}, type);
}

}  // namespace mgpu::train
