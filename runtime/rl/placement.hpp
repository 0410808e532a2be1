#pragma once

#include <memory>
#include <vector>

#include "runtime/comm/comm.hpp"
#include "runtime/config/planning/roles.hpp"
#include "runtime/model/layout.hpp"
#include "runtime/model/transformer.hpp"
#include "runtime/parallel/shards.hpp"

namespace mgpu::rl {

// Where a model that does not learn is computed with: by all ranks on their own devices, or by the
// one that holds it, on the device of its role.
class Placement {
 public:
  // `own`: the device that this rank learns on.
  Placement(const train::Role& role, at::Device own, comm::Comm& comm);

  bool held() const { return held_; }
  int holder() const { return holder_; }
  bool here() const { return here_; }  // whether this rank computes
  at::Device device() const { return device_; }
  // Where its weights are spread: over all ranks, or nowhere.
  comm::Comm& spread() const { return *spread_; }

  // Weights without values, for who computes.
  std::unique_ptr<parallel::Shards> make_shards(const model::ModelConfig& config,
                                                model::ModelLayout layout,
                                                at::ScalarType dtype) const;

 private:
  bool held_, here_;
  int holder_;
  at::Device device_;
  std::unique_ptr<comm::Comm> alone_;
  comm::Comm* spread_;
};

// Numbers of one rank for everybody: `numbers` has its size everywhere, and its values there.
void send_to_all(std::vector<float>& numbers, int from, comm::Comm& comm, at::Device device,
                 const char* what);

}  // namespace mgpu::rl
