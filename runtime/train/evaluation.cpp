#include "runtime/train/evaluation.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "runtime/data/loader.hpp"

namespace mgpu::train {
namespace {

data::Step slice(const data::Items& items, std::size_t begin, std::size_t end) {
  data::Step step;
  for (std::size_t i = begin; i < end; ++i) step.items.add(items[i]);
  return step;
}

}  // namespace

EvaluationResult evaluate(Learner& learner, const data::Dataset& dataset, const data::Items& items,
                          std::int64_t per_device) {
  const auto start = std::chrono::steady_clock::now();
  auto& comm = learner.comm();
  data::LoaderOptions options;
  options.rank = comm.rank();
  options.world = comm.world();
  options.max_items = per_device;
  options.min_micro_batches = 1;
  StepRecord record(learner.options().shards.device, comm.world());
  EvaluationResult result;
  const auto at_once = static_cast<std::size_t>(per_device * comm.world());
  for (std::size_t begin = 0; begin < items.size(); begin += at_once) {
    const auto end = std::min(begin + at_once, items.size());
    const auto batches = data::batches_of(dataset, slice(items, begin, end), options, {});
    for (const auto& micro_batch : batches.micro_batches) learner.evaluate(micro_batch, record);
    result.target_tokens += batches.target_tokens;
    result.examples += batches.examples;
    ++result.batches;
  }
  record.reduce(comm);
  record.copy_to_host();
  const auto outcome = record.outcome(0);
  const double target_tokens = static_cast<double>(std::max<std::int64_t>(1, result.target_tokens));
  result.loss = outcome.loss_sum / target_tokens;
  result.accuracy = outcome.correct / target_tokens;
  result.entropy = outcome.entropy_sum / target_tokens;
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace mgpu::train
