#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/comm/comm.hpp"
#include "runtime/train/loss_scaler.hpp"

namespace mgpu::train {

// The results of one step, the same on every rank.
struct StepOutcome {
  std::int64_t step = 0;
  double loss_sum = 0;     // over all target tokens of all ranks
  double correct = 0;      // target tokens that the model ranked first
  double entropy_sum = 0;  // nats, over all target tokens
  double grad_norm = 0;    // of the whole gradient, before clipping
  bool skipped = false;    // grad_norm is not finite; nothing was updated
  bool save_requested = false, stop_requested = false;  // requested on any rank
  double comm_seconds = 0;                // spent waiting for other ranks, summed over ranks
  std::vector<double> rank_seconds;       // each rank's own time, without waiting
  std::vector<std::int64_t> rank_memory;  // peak bytes on each rank's device so far
  bool confirmed = true;  // false: a lost rank has interrupted the sums; all numbers are of no use
  std::optional<LossScaleStep> loss_scale;
  bool new_products = false;  // matrix products without a choice (GemmChoices) came on some rank
  // Ranks on which a micro-batch did not fit into memory. If there are any, the step is skipped and
  // must be repeated; its other numbers have no meaning.
  std::vector<int> out_of_memory;
  bool indivisible = false;  // one of them cannot divide its micro-batch further
};

// The numbers of a step. The ranks sum them in one small all-reduce, and the host reads them a step
// later, when they have arrived long ago, so that the device never waits for the host.
class StepRecord {
 public:
  enum Slot {
    kSquaredNorm,
    kLoss,
    kCorrect,
    kEntropy,
    kSave,
    kStop,
    kCommSeconds,
    kIndivisible,
    kUnconfirmed,
    kNewProducts,
    kRankSeconds
  };

  StepRecord(at::Device device, int world);

  void add(Slot slot, const at::Tensor& scalar);
  void add(int slot, double value);
  // The peak memory of this rank's device.
  void add_memory(int rank, std::int64_t bytes);
  // This rank has run out of memory. The norm becomes infinite, so that no rank updates anything.
  void add_out_of_memory(int rank, bool indivisible);

  // Sums the numbers over the ranks. values() holds the sums afterwards.
  void reduce(comm::Comm& comm);
  const at::Tensor& values() const { return values_; }
  // Call after reduce(), with another number in every step of a communicator. Sums marks that only
  // this step has: their sum is right only if all ranks have completed their parts of all sums
  // before. A sum that a lost rank has interrupted can look complete, because NCCL leaves in it
  // what an earlier one has received. Returns 1 if the sums are not confirmed, else 0: a scalar on
  // the device.
  at::Tensor confirm(comm::Comm& comm, std::int64_t number);

  // The same on every rank.
  void set_loss_scale(const LossScaleStep& step) { loss_scale_ = step; }

  // Starts copying the numbers to the host. outcome() waits for the copy.
  void copy_to_host();
  StepOutcome outcome(std::int64_t step) const;

 private:
  struct Arrival;
  at::Tensor values_, host_;
  std::vector<double> host_values_;  // numbers added on the host
  int world_;
  std::optional<LossScaleStep> loss_scale_;
  std::shared_ptr<Arrival> arrival_;
};

}  // namespace mgpu::train
