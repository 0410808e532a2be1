#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "runtime/data/batch.hpp"
#include "runtime/data/dataset.hpp"
#include "runtime/data/schedule.hpp"

namespace mgpu::data {

struct LoaderOptions {
  int rank = 0, world = 1;
  std::int64_t max_items = 1;          // per micro-batch: the per-device batch size
  std::int64_t min_micro_batches = 0;  // the least number of micro-batches per step
  double quadratic = 0;                // see cost_of
  std::int64_t first_step = 0;         // the first step to prepare
  std::int64_t end_step = 0;           // one past the last step to prepare
  std::size_t prefetch_steps = 2;      // steps to prefetch, at least 1; with no thread, none
  int threads = 1;                     // that prepare steps; 0: next() does it
  // The relative speed of each rank for a step; empty: all equal. Called once per step, in order,
  // by one thread at a time, up to prefetch_steps + 1 steps early. It must return the same on all
  // ranks: measurements of step k may be used from step k + prefetch_steps + 4 on.
  std::function<std::vector<double>(std::int64_t step)> weights;
};

// This rank's work for one step, and the totals over all ranks.
struct StepBatches {
  std::int64_t step = 0, epoch = 0, index = 0;
  std::vector<Batch> micro_batches;  // the same number on every rank
  // Totals over all ranks. The sum of losses is divided by `target_tokens`, which needs no
  // communication.
  std::int64_t target_tokens = 0, tokens = 0, examples = 0;
  double attention_pairs = 0;                    // of tokens
  std::vector<double> costs;                     // of each rank's share
  std::vector<std::int64_t> rank_target_tokens;  // of each rank's share
};

// A step, and the dataset that its examples are in.
struct FedStep {
  Step step;
  std::shared_ptr<const Dataset> dataset;
};

// Returns a step, perhaps after waiting for it; throws when it is stopped. It is called once per
// step, in order, by one thread at a time, up to prefetch_steps + 1 steps early.
using StepFeed = std::function<FedStep(std::int64_t step, const std::stop_token& stop)>;

// This rank's work for a step. A pure function; the loader's threads call it.
StepBatches batches_of(const Dataset& dataset, const Step& step, const LoaderOptions& options,
                       std::vector<double> weights);

// Prepares the next steps on its own threads, a bounded number ahead. The steps are the same with
// any number of threads. The destructor stops the threads and waits for the steps in preparation.
class Loader {
 public:
  Loader(StepFeed feed, LoaderOptions options);
  // The steps of a schedule. The dataset must outlive the loader.
  Loader(const Dataset& dataset, Schedule schedule, LoaderOptions options);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next step, or nullopt after the last one. Rethrows an exception of its preparation.
  std::optional<StepBatches> next();

 private:
  // A step whose examples and weights are known. The only work that needs the steps' order.
  struct Planned {
    FedStep fed;
    std::vector<double> weights;
  };
  Planned plan(std::int64_t step, const std::stop_token& stop);
  StepBatches prepare(Planned planned) const;
  void run(const std::stop_token& stop);
  void fail(std::int64_t step);

  LoaderOptions options_;
  StepFeed feed_;  // used by the thread that has set planning_
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::int64_t next_to_plan_, next_to_return_;
  bool planning_ = false;
  std::map<std::int64_t, StepBatches> ready_;
  std::int64_t failed_step_;  // the first step that could not be prepared; after the last: none
  std::exception_ptr error_;  // of failed_step_
  std::vector<std::jthread> threads_;  // last, because they use the other members
};

}  // namespace mgpu::data
