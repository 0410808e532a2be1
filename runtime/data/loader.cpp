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

namespace {

StepFeed feed_of(const Dataset& dataset, Schedule schedule) {
  const std::shared_ptr<const Dataset> unowned(std::shared_ptr<const Dataset>(), &dataset);
  return
      [unowned, schedule = std::move(schedule)](std::int64_t step, const std::stop_token&) mutable {
        return FedStep{.step = schedule.at(step), .dataset = unowned};
      };
}

}  // namespace

Loader::Loader(const Dataset& dataset, Schedule schedule, LoaderOptions options)
    : Loader(feed_of(dataset, std::move(schedule)), std::move(options)) {}

Loader::Loader(StepFeed feed, LoaderOptions options)
    : options_(std::move(options)),
      feed_(std::move(feed)),
      next_to_plan_(options_.first_step),
      next_to_return_(options_.first_step),
      failed_step_(std::max(options_.first_step, options_.end_step)) {
  for (int i = 0; i < options_.threads; ++i)
    threads_.emplace_back([this](const std::stop_token& stop) { run(stop); });
}

Loader::Planned Loader::plan(std::int64_t step, const std::stop_token& stop) {
  std::vector<double> weights;
  if (options_.weights) weights = options_.weights(step);
  return {feed_(step, stop), std::move(weights)};
}

StepBatches Loader::prepare(Planned planned) const {
  return batches_of(*planned.fed.dataset, planned.fed.step, options_, std::move(planned.weights));
}

void Loader::fail(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  if (step >= failed_step_) return;
  failed_step_ = step;
  error_ = std::current_exception();
}

void Loader::run(const std::stop_token& stop) {
  const auto most = static_cast<std::int64_t>(std::max<std::size_t>(options_.prefetch_steps, 1));
  const auto change = [this](const auto& what) {
    const std::lock_guard lock(mutex_);
    what();
    changed_.notify_all();
  };
  while (true) {
    std::int64_t step = 0;
    {
      std::unique_lock lock(mutex_);
      const auto may_go_on = [&] {
        return next_to_plan_ >= failed_step_ ||
               (!planning_ && next_to_plan_ <= next_to_return_ + most);
      };
      if (!changed_.wait(lock, stop, may_go_on) || stop.stop_requested() ||
          next_to_plan_ >= failed_step_)
        return;
      step = next_to_plan_++;
      planning_ = true;
    }
    std::optional<Planned> planned;
    try {
      planned = plan(step, stop);
    } catch (...) {
      fail(step);
    }
    change([&] { planning_ = false; });
    if (!planned) return;
    try {
      StepBatches batches = prepare(std::move(*planned));
      change([&] { ready_.emplace(step, std::move(batches)); });
    } catch (...) {
      fail(step);
      change([] {});
      return;
    }
  }
}

std::optional<StepBatches> Loader::next() {
  std::unique_lock lock(mutex_);
  if (threads_.empty() && next_to_return_ < failed_step_) {
    const auto step = next_to_return_++;
    lock.unlock();
    try {
      return prepare(plan(step, {}));
    } catch (...) {
      fail(step);
      throw;
    }
  }
  changed_.wait(
      lock, [&] { return next_to_return_ >= failed_step_ || ready_.contains(next_to_return_); });
  if (next_to_return_ >= failed_step_) {
    if (error_) std::rethrow_exception(error_);
    return std::nullopt;
  }
  StepBatches batches = std::move(ready_.extract(next_to_return_++).mapped());
  changed_.notify_all();
  return batches;
}

}  // namespace mgpu::data
