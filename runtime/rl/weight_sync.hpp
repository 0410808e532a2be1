#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/comm/comm.hpp"
#include "runtime/parallel/shards.hpp"
#include "runtime/servers/adapters.hpp"
#include "runtime/servers/weight_transfer.hpp"
#include "runtime/train/saver.hpp"

namespace mgpu::rl {

// Sends the policy's weights to a server. All ranks make each call together; only rank 0
// communicates with the server.
class WeightSync {
 public:
  WeightSync() = default;
  WeightSync(const WeightSync&) = delete;
  WeightSync& operator=(const WeightSync&) = delete;
  virtual ~WeightSync() = default;

  // When it returns, the server generates with the weights after this step. Returns the model name
  // to use in requests.
  virtual std::string send(std::int64_t step) = 0;
  virtual void finish() = 0;
};

// Sends the adapter through a folder that this job and the server share. `adapters` is null on
// ranks other than 0.
std::unique_ptr<WeightSync> make_adapter_sync(std::unique_ptr<servers::Adapters> adapters,
                                              train::Saver& saver, comm::Comm& comm,
                                              c10::Device device);

// Sends all weights, over NCCL instead of HTTP; the model name stays. `transport` is null on ranks
// other than 0.
struct TransferOptions {
  const servers::ServerClient& server;
  std::string model;
  servers::TransferGroup group;
};
std::unique_ptr<WeightSync> make_transfer_sync(const TransferOptions& options,
                                               std::unique_ptr<servers::Transport> transport,
                                               parallel::Shards& shards, comm::Comm& comm);

}  // namespace mgpu::rl
