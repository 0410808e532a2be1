#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/comm/comm.hpp"

namespace mgpu::train {

// What one step came to, the same on every rank.
struct StepOutcome {
  std::int64_t step = 0;
  double loss_sum = 0;                            // over all labels of all ranks
  double correct = 0;                             // labels that were the most likely token
  double entropy_sum = 0;                         // nats, over all labels
  double grad_norm = 0;                           // of the whole gradient, before clipping
  bool skipped = false;                           // it was not finite and nothing was updated
  bool save_wanted = false, stop_wanted = false;  // by a signal to any rank
  double comm_seconds = 0;                        // that ranks waited for each other, all added up
  std::vector<double> rank_seconds;               // each rank's own time, without waiting
};

// Numbers of a step that all ranks add up in one small all-reduce and that the host reads later,
// when they have long been there: the device never waits for the host.
class StepRecord {
 public:
  enum Slot { kSquaredNorm, kLoss, kCorrect, kEntropy, kSave, kStop, kCommSeconds, kRankSeconds };

  StepRecord(at::Device device, int world);

  void add(Slot slot, const at::Tensor& scalar);
  void add(int slot, double value);

  // Adds up over the ranks. Then norm() is good.
  void reduce(comm::Comm& comm);
  const at::Tensor& values() const { return values_; }

  // Starts the copy to the host; outcome() waits for it.
  void copy_to_host();
  StepOutcome outcome(std::int64_t step) const;

 private:
  struct Arrival;
  at::Tensor values_, host_;
  std::vector<double> host_values_;  // what the host adds
  int world_;
  std::shared_ptr<Arrival> arrival_;
};

}  // namespace mgpu::train
