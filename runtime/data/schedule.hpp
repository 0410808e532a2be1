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
  std::int64_t global_batch = 1;  // items per step over all ranks; with packing, bins
  bool shuffle = true;
  bool packing = false;
  bool pack_in_order = false;  // instead of by best fit
  std::uint32_t capacity = 0;  // tokens per bin; required for packing
  // Without packing: gives the examples of a step similar lengths.
  bool group_by_length = false;
};

// The examples of one optimizer step over all ranks.
struct Step {
  std::int64_t step = 0;   // since training began
  std::int64_t epoch = 0;  // from 0
  std::int64_t index = 0;  // within the epoch
  Items items;
};

// Decides which examples form which step. The result depends on the data, the options and the step
// only, not on ranks or time. So a run that resumes at step k, with any world size, requests step
// k. Keeps the plan of one epoch, which takes O(examples) to compute. Not thread-safe, but copies
// are cheap. `lengths` (of all examples) must outlive it.
class Schedule {
 public:
  Schedule(std::span<const std::uint32_t> lengths, std::vector<Selection> selections,
           ScheduleOptions options);

  // With packing, the number of bins differs slightly between epochs.
  std::int64_t items_in(std::int64_t epoch);
  std::int64_t steps_in(std::int64_t epoch);  // items / global batch, rounded up
  // The number of steps in `epochs` epochs. A fraction of an epoch is rounded up to whole steps.
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
  std::vector<std::int64_t> first_steps_{0};  // of the epochs planned so far, and of the next one
};

}  // namespace mgpu::data
