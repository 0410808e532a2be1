#include "runtime/comm/text.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <cstring>

namespace mgpu::comm {

std::string share_text(Comm& comm, const std::string& text, c10::Device device, const char* what,
                       int from) {
  if (comm.world() == 1) return text;
  const auto size = at::full({1}, static_cast<std::int64_t>(text.size()),
                             at::TensorOptions(device).dtype(at::kLong));
  comm.broadcast(size, from, what).wait();
  const auto count = size.item<std::int64_t>();
  auto bytes = at::empty({count}, at::TensorOptions(at::kByte));
  if (comm.rank() == from) std::memcpy(bytes.data_ptr(), text.data(), text.size());
  if (count == 0) return "";
  bytes = bytes.to(device);
  comm.broadcast(bytes, from, what).wait();
  bytes = bytes.to(at::kCPU);
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::size_t>(count)};
}

}  // namespace mgpu::comm
