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

// How a server comes to have the weights of the policy. All ranks make each call together; rank 0
// speaks to the server.
class WeightSync {
 public:
  WeightSync() = default;
  WeightSync(const WeightSync&) = delete;
  WeightSync& operator=(const WeightSync&) = delete;
  virtual ~WeightSync() = default;

  // The server answers with the weights after this step when it returns. Gives the model's name in
  // requests.
  virtual std::string send(std::int64_t step) = 0;
  virtual void finish() = 0;
};

// The adapter, through a folder that both see. `adapters` is rank 0's, null elsewhere.
std::unique_ptr<WeightSync> make_adapter_sync(std::unique_ptr<servers::Adapters> adapters,
                                              train::Saver& saver, comm::Comm& comm,
                                              c10::Device device);

// All weights, past HTTP; they keep the model's name. `transport` is rank 0's, null elsewhere.
struct TransferOptions {
  const servers::Caller& server;
  std::string model;
  servers::Meeting meeting;
};
std::unique_ptr<WeightSync> make_transfer_sync(const TransferOptions& options,
                                               std::unique_ptr<servers::Transport> transport,
                                               parallel::Shards& shards, comm::Comm& comm);

}  // namespace mgpu::rl
