#include "runtime/servers/weight_transfer.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <thread>

namespace mgpu::servers {
namespace {

using nlohmann::json;

constexpr milliseconds kLimit{600'000};
constexpr std::int64_t kBytes = 2;  // of an element in bf16 or fp16

std::int64_t bytes_of(const SentTensor& tensor) {
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), kBytes, std::multiplies<>());
}

// Throws the error of the request if it has failed.
Transport::CheckServer check_request(std::future<void>& request) {
  return [&request] {
    if (request.valid() && request.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
      request.get();
  };
}

}  // namespace

std::vector<std::int64_t> pack_sizes(const std::vector<SentTensor>& tensors, std::int64_t limit) {
  std::vector<std::int64_t> packs;
  bool full = true;
  for (const auto& tensor : tensors) {
    if (full) packs.push_back(0);
    packs.back() += bytes_of(tensor);
    full = packs.back() > limit;
  }
  return packs;
}

// No retries: a transfer request that is sent twice would make the workers wait twice.
WeightTransfer::WeightTransfer(const ServerClient& server, TransferGroup group,
                               std::vector<SentTensor> tensors,
                               std::unique_ptr<Transport> transport, std::int64_t pack_bytes)
    : server_(server.address(), {.tries = 1}),
      group_(std::move(group)),
      tensors_(std::move(tensors)),
      transport_(std::move(transport)),
      packs_(pack_sizes(tensors_, pack_bytes)) {}

void WeightTransfer::post(const std::string& path, const json& body) const {
  const auto answer = server_.post(path, body, kLimit);
  if (answer.status != 200) throw std::runtime_error(server_.error_text(path, answer));
}

// The thread is detached: if the transfer fails, nothing waits for an answer that may never come.
std::future<void> WeightTransfer::start(const std::string& path, const json& body) const {
  std::packaged_task<void()> task([server = server_, path, body] {
    const auto answer = server.post(path, body, kLimit);
    if (answer.status != 200) throw std::runtime_error(server.error_text(path, answer));
  });
  auto result = task.get_future();
  std::thread(std::move(task)).detach();
  return result;
}

void WeightTransfer::join() {
  json info{{"master_address", group_.address},
            {"master_port", group_.port},
            {"rank_offset", 1},
            {"world_size", group_.workers + 1}};
  if (group_.packs_at_init) info["packed"] = true;
  auto init = start("/init_weight_transfer_engine", {{"init_info", info}});
  transport_->join(check_request(init));
  if (init.valid()) init.get();
  joined_ = true;
}

void WeightTransfer::begin() {
  if (!joined_) join();
  post("/start_weight_update", json::object());
  json names = json::array(), dtypes = json::array(), shapes = json::array();
  for (const auto& tensor : tensors_) {
    names.push_back(tensor.name);
    dtypes.push_back(tensor.dtype == at::kHalf ? "float16" : "bfloat16");
    shapes.push_back(tensor.shape);
  }
  json info{{"names", names}, {"dtype_names", dtypes}, {"shapes", shapes}};
  if (!group_.packs_at_init) info["packed"] = true;
  receiving_ = start("/update_weights", {{"update_info", info}});
  tensor_ = pack_ = 0;
  filled_ = 0;
}

void WeightTransfer::add(const std::string& name, const at::Tensor& value) {
  if (tensor_ >= tensors_.size() || tensors_[tensor_].name != name ||
      value.sizes() != at::IntArrayRef(tensors_[tensor_].shape))
    throw std::logic_error(fmt::format("{} is not the next tensor", name));
  if (!buffer_.defined())
    buffer_ = at::empty({*std::max_element(packs_.begin(), packs_.end())},
                        value.options().dtype(at::kByte));
  const auto& tensor = tensors_[tensor_++];
  const auto bytes = bytes_of(tensor);
  const auto numbers = value.to(tensor.dtype).contiguous().view({-1}).view(at::kByte);
  buffer_.narrow(0, filled_, bytes).copy_(numbers);
  filled_ += bytes;
  if (filled_ < packs_[pack_]) return;
  transport_->broadcast(buffer_.narrow(0, 0, filled_), check_request(receiving_));
  ++pack_;
  filled_ = 0;
}

void WeightTransfer::finish() {
  if (tensor_ != tensors_.size()) throw std::logic_error("not all tensors were sent");
  buffer_.reset();
  if (receiving_.valid()) receiving_.get();
  post("/finish_weight_update", json::object());
  post("/reset_prefix_cache", json::object());
}

}  // namespace mgpu::servers
