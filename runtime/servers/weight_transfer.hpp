#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "runtime/servers/caller.hpp"

// All weights of a model to a vLLM: announced over HTTP, sent past it in packs of bytes.
namespace mgpu::servers {

// The way past HTTP, to all workers of a server at once.
class Transport {
 public:
  // Asked again and again while something waits for the workers; throws when the server has given
  // up, so that nobody waits for ever.
  using StillWanted = std::function<void()>;

  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  // Meets the workers, once.
  virtual void join(const StillWanted& still_wanted) = 0;
  // `bytes` (uint8, contiguous, on the transport's device) may be changed when it returns.
  virtual void broadcast(const at::Tensor& bytes, const StillWanted& still_wanted) = 0;
};

struct SentTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};

// How workers find the trainer, who is rank 0 among them.
struct Meeting {
  std::string address;
  int port = 51216;
  std::int64_t workers = 1;
  bool packs_at_init = true;  // see there
};

// Bytes of each pack: tensors in order, until there are more than `limit`. Both sides compute it.
inline constexpr std::int64_t kPackBytes = std::int64_t{1} << 30;
std::vector<std::int64_t> pack_sizes(const std::vector<SentTensor>& tensors, std::int64_t limit);

// Sends versions of the same tensors, in bf16. For one rank.
class WeightTransfer {
 public:
  WeightTransfer(const Caller& server, Meeting meeting, std::vector<SentTensor> tensors,
                 std::unique_ptr<Transport> transport, std::int64_t pack_bytes = kPackBytes);

  // begin(), every tensor in its order, finish(): the server answers with them from then on.
  void begin();
  void add(const std::string& name, const at::Tensor& value);
  void finish();

 private:
  void join();
  void post(const std::string& path, const nlohmann::json& body) const;
  // Asks while something else goes on.
  std::future<void> start(const std::string& path, const nlohmann::json& body) const;

  Caller server_;
  Meeting meeting_;
  std::vector<SentTensor> tensors_;
  std::unique_ptr<Transport> transport_;
  std::vector<std::int64_t> packs_;
  bool joined_ = false;
  std::future<void> receiving_;
  std::size_t tensor_ = 0, pack_ = 0;  // that come next
  std::int64_t filled_ = 0;            // of the pack
  at::Tensor buffer_;
};

}  // namespace mgpu::servers
