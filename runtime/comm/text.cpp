#include "runtime/comm/text.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace mgpu::comm {
namespace {

// What is sent before a text.
struct Header {
  std::int64_t size = 0, inverted_size = 0, checksum = 0;

  // Memory that a collective did not fill is 0, which is not a size with its inverse.
  bool complete() const { return size >= 0 && inverted_size == ~size; }
};

std::int64_t checksum_of(std::string_view text) {
  std::uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return static_cast<std::int64_t>(hash);
}

at::Tensor header_of(const std::string& text) {
  const auto size = static_cast<std::int64_t>(text.size());
  const std::array values{size, ~size, checksum_of(text)};
  auto header = at::empty({static_cast<std::int64_t>(values.size())}, at::kLong);
  std::memcpy(header.data_ptr(), values.data(), sizeof values);
  return header;
}

Header header_at(const at::Tensor& headers, std::int64_t index) {
  const auto* values = headers.const_data_ptr<std::int64_t>() + 3 * index;
  return {values[0], values[1], values[2]};
}

// The lost rank's peers learn of the loss while they wait in a barrier.
void require(bool complete, Comm& comm, const char* what) {
  if (complete) return;
  comm.barrier(what);
  throw std::runtime_error(fmt::format("{}: a text arrived damaged", what));
}

}  // namespace

std::string share_text(Comm& comm, const std::string& text, c10::Device device, const char* what,
                       int from) {
  if (comm.world() == 1 || !comm.connected()) return text;
  const bool sends = comm.rank() == from;
  auto header = (sends ? header_of(text) : at::zeros({3}, at::kLong)).to(device);
  comm.broadcast(header, from, what).wait();
  const auto sent = header_at(header.to(at::kCPU), 0);
  require(sent.complete(), comm, what);
  if (sent.size == 0) return "";
  auto bytes = at::zeros({sent.size}, at::kByte);
  if (sends) std::memcpy(bytes.data_ptr(), text.data(), text.size());
  bytes = bytes.to(device);
  comm.broadcast(bytes, from, what).wait();
  bytes = bytes.to(at::kCPU);
  std::string received(static_cast<const char*>(bytes.const_data_ptr()),
                       static_cast<std::size_t>(sent.size));
  require(checksum_of(received) == sent.checksum, comm, what);
  return received;
}

std::vector<std::string> gather_texts(Comm& comm, const std::string& text, c10::Device device,
                                      const char* what) {
  std::vector<std::string> texts(static_cast<std::size_t>(comm.world()), text);
  if (comm.world() == 1 || !comm.connected()) return texts;
  const auto all_of = [&](const at::Tensor& own) {
    const auto all = at::zeros({comm.world() * own.numel()}, own.options().device(device));
    comm.all_gather(all, own.to(device), what).wait();
    return all.to(at::kCPU);
  };
  const auto headers = all_of(header_of(text));
  std::int64_t longest = 0;
  for (int rank = 0; rank < comm.world(); ++rank) {
    const auto header = header_at(headers, rank);
    require(header.complete(), comm, what);
    longest = std::max(longest, header.size);
  }
  if (longest == 0) return texts;
  const auto bytes = at::zeros({longest}, at::kByte);
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
  const auto all = all_of(bytes);
  const auto* begin = static_cast<const char*>(all.const_data_ptr());
  for (int rank = 0; rank < comm.world(); ++rank) {
    const auto header = header_at(headers, rank);
    auto& received = texts[static_cast<std::size_t>(rank)];
    received.assign(begin + rank * longest, static_cast<std::size_t>(header.size));
    require(checksum_of(received) == header.checksum, comm, what);
  }
  return texts;
}

}  // namespace mgpu::comm
