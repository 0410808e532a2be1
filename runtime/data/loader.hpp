#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/data/batch.hpp"
#include "runtime/data/dataset.hpp"
#include "runtime/data/schedule.hpp"

namespace mgpu::data {

struct LoaderOptions {
  int rank = 0, world = 1;
  std::int64_t max_items = 1;      // of a micro-batch: the per-device batch size
  std::int64_t micro_batches = 0;  // at least so many a step
  double quadratic = 0;            // see cost_of
  std::int64_t first_step = 0;     // where to go on
  std::int64_t end_step = 0;       // the first that is not wanted
  std::size_t ahead = 2;           // steps prepared before they are asked for, at least 1
  // How fast the ranks are, for a step; empty: all alike. Called once a step, in order, on the
  // loader's thread, up to ahead + 1 steps early. All ranks have to be told the same: let what is
  // measured at step k act on step k + ahead + 4.
  std::function<std::vector<double>(std::int64_t step)> weights;
};

// One step's work of this rank, and what all ranks together compute.
struct StepBatches {
  std::int64_t step = 0, epoch = 0, index = 0;
  std::vector<Batch> micro_batches;  // as many at every rank
  // Over all ranks: what to divide the sum of losses by, without asking the others.
  std::int64_t target_tokens = 0, tokens = 0, examples = 0;
  std::vector<double> costs;                   // of each rank's share
  std::vector<std::int64_t> target_tokens_of;  // of each rank's share
};

// What this rank does at a step: pure, and what the loader's thread calls.
StepBatches batches_of(const Dataset& dataset, const Step& step, const LoaderOptions& options,
                       std::vector<double> weights);

// Prepares the coming steps on a thread of its own, a bounded number ahead. The thread ends with
// the loader, which waits for the step in hand. The data set has to outlive it.
class Loader {
 public:
  Loader(const Dataset& dataset, Schedule schedule, LoaderOptions options);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next step, or none behind the last. Throws what went wrong while it was prepared.
  std::optional<StepBatches> next();

 private:
  void run(const std::stop_token& stop, Schedule schedule);

  const Dataset& dataset_;
  LoaderOptions options_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<StepBatches> ready_;
  std::exception_ptr error_;
  bool ended_ = false;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace mgpu::data
