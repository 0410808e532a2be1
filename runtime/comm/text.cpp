#include "runtime/comm/text.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

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

std::vector<std::string> gather_texts(Comm& comm, const std::string& text, c10::Device device,
                                      const char* what) {
  if (comm.world() == 1) return {text};
  const auto all_of = [&](const at::Tensor& own) {
    const auto all = at::empty({comm.world() * own.numel()}, own.options().device(device));
    comm.all_gather(all, own.to(device), what).wait();
    return all.to(at::kCPU);
  };
  const auto sizes = all_of(at::full({1}, static_cast<std::int64_t>(text.size()), at::kLong));
  const auto longest = sizes.max().item<std::int64_t>();
  std::vector<std::string> texts(static_cast<std::size_t>(comm.world()));
  if (longest == 0) return texts;
  const auto bytes = at::zeros({longest}, at::kByte);
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
  const auto all = all_of(bytes);
  const auto* begin = static_cast<const char*>(all.const_data_ptr());
  for (std::size_t rank = 0; rank < texts.size(); ++rank)
    texts[rank].assign(begin + rank * static_cast<std::size_t>(longest),
                       static_cast<std::size_t>(sizes.const_data_ptr<std::int64_t>()[rank]));
  return texts;
}

}  // namespace mgpu::comm
