#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "runtime/servers/server_client.hpp"

// Sends all weights of a model to a vLLM server: announced over HTTP, sent in packs of bytes over a
// separate transport.
namespace mgpu::servers {

// A transport that sends bytes to all workers of a server at once, without HTTP.
class Transport {
 public:
  // Called repeatedly while waiting for the workers. Throws when the server has given up, so that
  // the wait ends.
  using CheckServer = std::function<void()>;

  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  // Forms the group with the workers. Called once.
  virtual void join(const CheckServer& check_server) = 0;
  // `bytes` (uint8, contiguous, on the transport's device) may be changed when it returns.
  virtual void broadcast(const at::Tensor& bytes, const CheckServer& check_server) = 0;
};

struct SentTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  at::ScalarType dtype = at::kBFloat16;  // that it is sent in: bf16 or fp16
};

// The group of the trainer, which is rank 0, and the server's workers: where they find it.
struct TransferGroup {
  std::string address;
  int port = 51216;
  std::int64_t workers = 1;
  bool packs_at_init = true;  // see packs_at_init() in vllm.hpp
};

// The bytes of each pack: tensors in order, until a pack exceeds `limit`. Both sides compute it.
inline constexpr std::int64_t kPackBytes = std::int64_t{1} << 30;
std::vector<std::int64_t> pack_sizes(const std::vector<SentTensor>& tensors, std::int64_t limit);

// Sends versions of the same tensors, in 16 bits. Used by one rank only.
class WeightTransfer {
 public:
  WeightTransfer(const ServerClient& server, TransferGroup group, std::vector<SentTensor> tensors,
                 std::unique_ptr<Transport> transport, std::int64_t pack_bytes = kPackBytes);

  // Call begin(), add() for every tensor in order, then finish(). From then on the server generates
  // with the new weights.
  void begin();
  void add(const std::string& name, const at::Tensor& value);
  void finish();

 private:
  void join();
  void post(const std::string& path, const nlohmann::json& body) const;
  // Posts in the background.
  std::future<void> start(const std::string& path, const nlohmann::json& body) const;

  ServerClient server_;
  TransferGroup group_;
  std::vector<SentTensor> tensors_;
  std::unique_ptr<Transport> transport_;
  std::vector<std::int64_t> packs_;
  bool joined_ = false;
  std::future<void> receiving_;
  std::size_t tensor_ = 0, pack_ = 0;  // the next ones
  std::int64_t filled_ = 0;            // bytes in the current pack
  at::Tensor buffer_;
};

}  // namespace mgpu::servers
