#include "runtime/data/loader.hpp"

#include <algorithm>
#include <utility>

#include "runtime/data/collate.hpp"
#include "runtime/data/share.hpp"

namespace mgpu::data {

StepBatches batches_of(const Dataset& dataset, const Step& step, const LoaderOptions& options,
                       std::vector<double> weights) {
  StepBatches out{.step = step.step, .epoch = step.epoch, .index = step.index};
  std::vector<double> costs;
  for (std::size_t i = 0; i < step.items.size(); ++i)
    costs.push_back(cost_of(step.items[i], dataset.lengths(), options.quadratic));
  for (const std::uint32_t example : step.items.examples) {
    out.target_tokens += dataset.target_counts()[example];
    out.tokens += dataset.lengths()[example];
    out.attention_pairs += attention_pairs(dataset.lengths()[example]);
    ++out.examples;
  }

  const Shares shares = share(costs, {.world = options.world,
                                      .max_items = options.max_items,
                                      .min_micro_batches = options.min_micro_batches,
                                      .weights = std::move(weights)});
  for (const auto& rank : shares) {
    double& sum = out.costs.emplace_back(0);
    std::int64_t& labels = out.rank_target_tokens.emplace_back(0);
    for (const auto& micro_batch : rank) {
      for (const std::uint32_t item : micro_batch) {
        sum += costs[item];
        for (const std::uint32_t example : step.items[item])
          labels += dataset.target_counts()[example];
      }
    }
  }
  for (const auto& micro_batch : shares[static_cast<std::size_t>(options.rank)]) {
    std::vector<std::uint32_t> examples;
    for (const std::uint32_t item : micro_batch)
      examples.insert(examples.end(), step.items[item].begin(), step.items[item].end());
    out.micro_batches.push_back(collate(dataset, examples));
  }
  return out;
}

Loader::Loader(const Dataset& dataset, Schedule schedule, LoaderOptions options)
    : dataset_(dataset),
      options_(std::move(options)),
      thread_([this, plan = std::move(schedule)](const std::stop_token& stop) mutable {
        run(stop, std::move(plan));
      }) {}

void Loader::run(const std::stop_token& stop, Schedule schedule) {
  try {
    for (std::int64_t step = options_.first_step; step < options_.end_step; ++step) {
      std::vector<double> weights;
      if (options_.weights) weights = options_.weights(step);
      StepBatches batches = batches_of(dataset_, schedule.at(step), options_, std::move(weights));
      std::unique_lock lock(mutex_);
      const std::size_t most = std::max<std::size_t>(options_.prefetch_steps, 1);
      if (!changed_.wait(lock, stop, [&] { return ready_.size() < most; })) return;
      ready_.push_back(std::move(batches));
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

std::optional<StepBatches> Loader::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !ready_.empty() || ended_; });
  if (!ready_.empty()) {
    StepBatches batches = std::move(ready_.front());
    ready_.pop_front();
    changed_.notify_all();
    return batches;
  }
  if (error_) std::rethrow_exception(error_);
  return std::nullopt;
}

}  // namespace mgpu::data
