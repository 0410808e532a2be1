#include "runtime/train/step_record.hpp"

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

#include "rendezvous/base/seeds.hpp"

namespace mgpu::train {
namespace {

constexpr int kMarkShift = 24;  // sums of marks fit into 64 bits

}  // namespace

struct StepRecord::Arrival {
  at::cuda::CUDAEvent event;
};

// After the named slots: every rank's seconds, every rank's memory, and for every rank whether it
// ran out of memory.
StepRecord::StepRecord(at::Device device, int world)
    : values_(at::zeros({kRankSeconds + 3 * world}, at::TensorOptions(device).dtype(at::kDouble))),
      host_values_(static_cast<std::size_t>(kRankSeconds + 3 * world), 0.0),
      world_(world) {}

void StepRecord::add(Slot slot, const at::Tensor& scalar) {
  values_.narrow(0, slot, 1).add_(scalar);
}

void StepRecord::add(int slot, double value) {
  host_values_[static_cast<std::size_t>(slot)] += value;
}

void StepRecord::add_memory(int rank, std::int64_t bytes) {
  add(kRankSeconds + world_ + rank, static_cast<double>(bytes));
}

void StepRecord::add_out_of_memory(int rank, bool indivisible) {
  add(kSquaredNorm, std::numeric_limits<double>::infinity());
  add(kRankSeconds + 2 * world_ + rank, 1);
  add(kIndivisible, indivisible ? 1 : 0);
}

void StepRecord::reduce(comm::Comm& comm) {
  const auto size = static_cast<std::int64_t>(host_values_.size());
  auto known = at::empty({size}, at::TensorOptions(at::kDouble).pinned_memory(values_.is_cuda()));
  known.copy_(at::from_blob(host_values_.data(), {size}, at::kDouble));
  values_.add_(known.to(values_.device(), /*non_blocking=*/true));
  comm.all_reduce(values_, "all-reduce of losses and norms").wait();
}

at::Tensor StepRecord::confirm(comm::Comm& comm, std::int64_t number) {
  const auto mark = [number](int rank) {
    return static_cast<std::int64_t>(rendezvous::mix_seed(static_cast<std::uint64_t>(number),
                                                          {static_cast<std::uint64_t>(rank)}) >>
                                     kMarkShift);
  };
  std::int64_t expected = 0;
  for (int rank = 0; rank < world_; ++rank) expected += mark(rank);
  const auto sum =
      at::full({1}, mark(comm.rank()), at::TensorOptions(values_.device()).dtype(at::kLong));
  comm.all_reduce(sum, "all-reduce of a step's marks").wait();
  const auto unconfirmed = sum.ne(expected);
  values_.narrow(0, kUnconfirmed, 1).copy_(unconfirmed);
  return unconfirmed.to(at::kFloat).select(0, 0);
}

void StepRecord::copy_to_host() {
  if (!values_.is_cuda()) {
    host_ = values_;
    return;
  }
  host_ = at::empty(values_.sizes(), at::TensorOptions(at::kDouble).pinned_memory(true));
  host_.copy_(values_, /*non_blocking=*/true);
  arrival_ = std::make_shared<Arrival>();
  arrival_->event.record();
}

StepOutcome StepRecord::outcome(std::int64_t step) const {
  if (arrival_) arrival_->event.synchronize();
  const auto* v = host_.const_data_ptr<double>();
  StepOutcome out;
  out.step = step;
  out.loss_sum = v[kLoss];
  out.correct = v[kCorrect];
  out.entropy_sum = v[kEntropy];
  out.grad_norm = std::sqrt(v[kSquaredNorm]);
  out.skipped = !std::isfinite(out.grad_norm);
  out.save_requested = v[kSave] > 0;
  out.stop_requested = v[kStop] > 0;
  out.comm_seconds = v[kCommSeconds];
  out.rank_seconds.assign(v + kRankSeconds, v + kRankSeconds + world_);
  for (int rank = 0; rank < world_; ++rank)
    out.rank_memory.push_back(static_cast<std::int64_t>(v[kRankSeconds + world_ + rank]));
  for (int rank = 0; rank < world_; ++rank)
    if (v[kRankSeconds + 2 * world_ + rank] > 0) out.out_of_memory.push_back(rank);
  out.indivisible = v[kIndivisible] > 0;
  out.confirmed = v[kUnconfirmed] == 0;
  out.loss_scale = loss_scale_;
  out.new_products = v[kNewProducts] > 0;
  return out;
}

}  // namespace mgpu::train
