#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/data/order.hpp"
#include "runtime/data/packing.hpp"

namespace mgpu::data {

struct ScheduleOptions {
  std::uint64_t seed = 42;
  std::int64_t global_batch = 1;  // items of a step over all ranks; with packing, bins
  bool shuffle = true;
  bool packing = false;
  std::uint32_t capacity = 0;  // tokens of a bin; needed for packing
  // Without packing: the examples of a step are about equally long.
  bool group_by_length = false;
};

// One optimizer step's examples, over all ranks.
struct Step {
  std::int64_t step = 0;   // since training began
  std::int64_t epoch = 0;  // from 0
  std::int64_t index = 0;  // within the epoch
  Items items;
};

// Says which examples form which step. It knows of no ranks and no time: the answer depends on the
// data, the options and the step, so a run that goes on at step k, at any world size, asks for step
// k. Keeps the plan of one epoch (O(examples) to make); not for several threads at once, but
// copies are cheap. `lengths` (of all examples) has to outlive it.
class Schedule {
 public:
  Schedule(std::span<const std::uint32_t> lengths, std::vector<Selection> selections,
           ScheduleOptions options);

  // With packing, epochs differ a little in their number of bins.
  std::int64_t items_in(std::int64_t epoch);
  std::int64_t steps_in(std::int64_t epoch);  // items / global batch, rounded up
  // Steps of so many epochs; a part of an epoch is rounded up to whole steps.
  std::int64_t total_steps(double epochs);

  Step at(std::int64_t step);

 private:
  const Items& plan(std::int64_t epoch);
  Items make_plan(std::int64_t epoch) const;
  std::vector<std::uint32_t> grouped_order(std::span<const std::uint32_t> order,
                                           std::int64_t epoch) const;
  std::int64_t first_step_of(std::int64_t epoch);

  std::span<const std::uint32_t> lengths_;
  std::shared_ptr<const std::vector<Selection>> selections_;
  ScheduleOptions options_;
  std::int64_t planned_epoch_ = -1;
  std::shared_ptr<const Items> plan_;
  std::vector<std::int64_t> first_steps_{0};  // of the epochs known so far, and of the one behind
};

}  // namespace mgpu::data
