#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string_view>

namespace mgpu::parallel {

// When the update of a bucket runs.
enum class UpdateOrder {
  at_once,  // before all work that is queued after it
  beside,   // on a GPU: on a stream of its own, beside the work that is queued after it
  late      // for tests of the waits: on a CPU when it is waited for, on a GPU beside and delayed
};

// "at_once", "beside" or "late"; empty: at_once. Throws std::runtime_error for another name.
UpdateOrder update_order(std::string_view name);

// Runs the updates of buckets by the optimizer. A step calls begin(), and then run() for each
// bucket. Whatever reads or writes what an update reads or writes (weights, gradients, the
// optimizer's state) must wait for the update first. Results do not depend on the order, unless a
// wait is missing.
class UpdateStream {
 public:
  UpdateStream(at::Device device, UpdateOrder order);
  // Updates that nobody has waited for need not have run.
  ~UpdateStream();
  UpdateStream(const UpdateStream&) = delete;
  UpdateStream& operator=(const UpdateStream&) = delete;

  // The updates from now on come after all work that the current stream has by now. This stream is
  // that of training: its waits count for all later work.
  void begin();
  // `update` queues the update of a bucket on the stream that is then the current one. Tensors that
  // it holds are kept until the bucket is waited for. Buckets come in ascending order.
  void run(int bucket, std::function<void()> update);

  // Work that the current stream gets from now on comes after the updates up to this bucket. Costs
  // nothing if there are none. On a CPU they are complete when it returns.
  void wait(int bucket);
  void wait() { wait(std::numeric_limits<int>::max()); }

 private:
  struct OnGpu;

  UpdateOrder order_;
  std::unique_ptr<OnGpu> gpu_;                   // unless updates run at once
  std::map<int, std::function<void()>> queued_;  // by bucket; not yet waited for
};

}  // namespace mgpu::parallel
