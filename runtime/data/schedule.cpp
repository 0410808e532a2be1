#include "runtime/data/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"
#include "runtime/data/random.hpp"

namespace mgpu::data {

namespace {

enum SchedulePurpose : std::uint64_t { kBins = 11, kGroups = 12 };
constexpr std::size_t kBatchesPerGroup = 50;

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

Schedule::Schedule(std::span<const std::uint32_t> lengths, std::vector<Selection> selections,
                   ScheduleOptions options)
    : lengths_(lengths),
      selections_(std::make_shared<const std::vector<Selection>>(std::move(selections))),
      options_(options) {
  if (options_.global_batch < 1)
    throw rendezvous::InputError("the global batch must be at least 1");
  if (options_.packing && options_.capacity == 0)
    throw rendezvous::InputError("packing requires max_length");
  const std::uint64_t size = epoch_size(*selections_);
  if (size == 0) throw rendezvous::InputError("an epoch has no examples");
  if (size >= 0xFFFFFFFF)
    throw rendezvous::InputError(
        fmt::format("an epoch of {} examples is too long; use smaller weights", size));
}

std::int64_t Schedule::items_in(std::int64_t epoch) {
  if (!options_.packing) return static_cast<std::int64_t>(epoch_size(*selections_));
  return static_cast<std::int64_t>(plan(epoch).size());
}

std::int64_t Schedule::steps_in(std::int64_t epoch) {
  return first_step_of(epoch + 1) - first_step_of(epoch);
}

std::int64_t Schedule::total_steps(double epochs) {
  if (!(epochs >= 0 && epochs <= 1e9))
    throw rendezvous::InputError(
        fmt::format("the number of epochs is {}; it must be from 0 to 1e9", epochs));
  const auto whole = static_cast<std::int64_t>(epochs);
  const double part = epochs - static_cast<double>(whole);
  std::int64_t steps = first_step_of(whole);
  if (part > 0)
    steps +=
        static_cast<std::int64_t>(std::ceil(part * static_cast<double>(steps_in(whole)) - 1e-9));
  return steps;
}

std::int64_t Schedule::first_step_of(std::int64_t epoch) {
  if (!options_.packing) return epoch * ceil_divide(items_in(0), options_.global_batch);
  while (static_cast<std::int64_t>(first_steps_.size()) <= epoch) {
    const auto last = static_cast<std::int64_t>(first_steps_.size()) - 1;
    first_steps_.push_back(first_steps_.back() +
                           ceil_divide(items_in(last), options_.global_batch));
  }
  return first_steps_[static_cast<std::size_t>(epoch)];
}

Step Schedule::at(std::int64_t step) {
  if (step < 0) throw std::logic_error("steps are counted from 0");
  std::int64_t epoch = 0;
  if (options_.packing)
    while (first_step_of(epoch + 1) <= step) ++epoch;
  else
    epoch = step / steps_in(0);

  Step out{.step = step, .epoch = epoch, .index = step - first_step_of(epoch)};
  const Items& items = plan(epoch);
  const auto batch = static_cast<std::size_t>(options_.global_batch);
  const std::size_t first = static_cast<std::size_t>(out.index) * batch;
  for (std::size_t i = first; i < std::min(first + batch, items.size()); ++i)
    out.items.add(items[i]);
  return out;
}

const Items& Schedule::plan(std::int64_t epoch) {
  if (planned_epoch_ != epoch) {
    plan_ = std::make_shared<const Items>(make_plan(epoch));
    planned_epoch_ = epoch;
  }
  return *plan_;
}

Items Schedule::make_plan(std::int64_t epoch) const {
  const std::vector<std::uint32_t> order =
      epoch_order(*selections_, options_.seed, epoch, options_.shuffle);
  if (!options_.packing)
    return singles(options_.group_by_length ? grouped_order(order, epoch) : order);
  if (options_.pack_in_order) return pack_in_order(order, lengths_, options_.capacity);
  const Items bins = pack(order, lengths_, options_.capacity);
  // Packing puts the long examples of a window first, so the bins are shuffled.
  std::vector<std::uint32_t> places(bins.size());
  std::iota(places.begin(), places.end(), 0U);
  if (options_.shuffle) {
    Random random({options_.seed, kBins, static_cast<std::uint64_t>(epoch)});
    shuffle(places, random);
  }
  return rearranged(bins, places);
}

// Sorts by length within groups of many batches, splits them into batches and shuffles the batches,
// so that lengths do not decrease over an epoch. A smaller last batch stays last.
std::vector<std::uint32_t> Schedule::grouped_order(std::span<const std::uint32_t> order,
                                                   std::int64_t epoch) const {
  const auto batch = static_cast<std::size_t>(options_.global_batch);
  std::vector<std::uint32_t> sorted(order.begin(), order.end());
  const std::size_t full = sorted.size() / batch * batch;
  for (std::size_t at = 0; at < full; at += batch * kBatchesPerGroup)
    std::stable_sort(
        sorted.begin() + static_cast<std::ptrdiff_t>(at),
        sorted.begin() + static_cast<std::ptrdiff_t>(std::min(at + batch * kBatchesPerGroup, full)),
        [&](std::uint32_t a, std::uint32_t b) { return lengths_[a] > lengths_[b]; });

  std::vector<std::uint32_t> batches(full / batch);
  std::iota(batches.begin(), batches.end(), 0U);
  if (options_.shuffle) {
    Random random({options_.seed, kGroups, static_cast<std::uint64_t>(epoch)});
    shuffle(batches, random);
  }
  std::vector<std::uint32_t> out;
  out.reserve(sorted.size());
  for (const std::uint32_t b : batches)
    for (std::size_t i = b * batch; i < (b + std::size_t{1}) * batch; ++i) out.push_back(sorted[i]);
  out.insert(out.end(), sorted.begin() + static_cast<std::ptrdiff_t>(full), sorted.end());
  return out;
}

}  // namespace mgpu::data
