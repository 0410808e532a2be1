#pragma once

#include <memory>
#include <vector>

#include "runtime/comm/comm.hpp"
#include "runtime/config/planning/roles.hpp"
#include "runtime/model/layout.hpp"
#include "runtime/model/transformer.hpp"
#include "runtime/parallel/shards.hpp"

namespace mgpu::rl {

// Where a model that is not trained is computed: by all ranks on their own devices with sharded
// weights, or by one rank where it is resident, on the device of its role.
class Placement {
 public:
  // `own`: the device on which this rank trains.
  Placement(const train::Role& role, at::Device own, comm::Comm& comm);

  bool resident() const { return resident_; }
  int resident_rank() const { return resident_rank_; }
  bool local() const { return local_; }  // whether this rank computes it
  at::Device device() const { return device_; }
  // The ranks over which its weights are sharded: all of them, or only this one.
  comm::Comm& comm() const { return *comm_; }

  // Weights without values; null on ranks that do not compute the model.
  std::unique_ptr<parallel::Shards> make_shards(const model::ModelConfig& config,
                                                model::ModelLayout layout,
                                                at::ScalarType dtype) const;

 private:
  bool resident_, local_;
  int resident_rank_;
  at::Device device_;
  std::unique_ptr<comm::Comm> alone_;
  comm::Comm* comm_;
};

// Sends the numbers of rank `from` to all ranks. `numbers` has the same size on every rank.
void broadcast_floats(std::vector<float>& numbers, int from, comm::Comm& comm, at::Device device,
                      const char* what);

}  // namespace mgpu::rl
