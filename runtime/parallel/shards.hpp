#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/comm/comm.hpp"
#include "runtime/model/unit.hpp"
#include "runtime/parallel/buckets.hpp"
#include "runtime/parallel/stalls.hpp"

namespace mgpu::parallel {

using at::Tensor;

enum class Reduce { sum, median };

struct ShardOptions {
  int zero_stage = 0;
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;       // of the weights that compute
  at::ScalarType grad_dtype = at::kFloat;  // gradients accumulate and travel in
  std::int64_t bucket_elements = 0;        // 0: chosen
  bool overlap = true;                     // reduce while backward goes on; off: all at its end
  Reduce reduce = Reduce::sum;
  bool trains = true;  // false: weights only, without room for gradients
};

// A fragment with its memory: what the optimizer updates and checkpoints hold.
struct OwnedFragment {
  Fragment fragment;
  Tensor value;  // 1-d view, compute dtype
  Tensor grad;   // 1-d view, of the whole step once finish_gradients() has returned
};

// Keeps a model's weights and gradients on this rank, spread by ZeRO stage:
//   0  weights and gradients whole on every rank
//   1  the same, but each rank gets the sum of gradients, and updates, its part only
//   2  gradients are held only in parts; each micro-batch's are reduced as backward makes them
//   3  weights too: gathered unit by unit, a unit ahead, and let go after use
// The order of calls in a step: begin_micro, forward and backward through the Keeper's calls; for
// each micro-batch; finish_gradients; update owned(); publish.
class Shards : public model::WeightProvider {
 public:
  Shards(const model::ModelConfig& config, model::ModelLayout layout, const ShardOptions& options,
         comm::Comm& comm);
  ~Shards() override;

  const model::Unit& weights(int unit) override;
  void release(int unit) override;
  void prefetch(int unit) override;
  const model::Unit& gradients(int unit) override;
  void gradients_done(int unit) override;

  // `last`: gradients of this micro-batch complete the step.
  void begin_micro_batch(bool first, bool last);
  // In place of a micro-batch's forward and backward: it adds nothing. With stage 3 all ranks do it
  // together.
  void skip_micro_batch();
  // With median: which ranks have labels in this step; the others' gradients are no votes.
  void set_voters(std::vector<bool> voters) { voters_ = std::move(voters); }
  void finish_gradients();
  std::vector<OwnedFragment>& owned() { return owned_; }
  bool sharded() const { return options_.zero_stage > 0; }
  // After the update: the other ranks' parts are fetched, as late as they are needed.
  void publish();

  // Keeps what this rank keeps of the whole tensor `value`; of one in 4 bits, of its bytes.
  void set(const std::string& name, const Tensor& value);
  // Moves what this rank keeps of a tensor by `part` of the way to the whole tensor `value`.
  void mix(const std::string& name, const Tensor& value, double part);
  // Calls visit(name, whole tensor) for every trained or frozen tensor in order, on every rank at
  // once; a tensor is valid during the call only.
  void visit(bool trained, const std::function<void(const std::string&, const Tensor&)>& visit);

  const model::ModelLayout& layout() const { return layout_; }
  const Buckets& buckets() const { return buckets_; }
  at::Device device() const { return options_.device; }
  at::ScalarType dtype() const { return options_.dtype; }
  // Seconds that collectives have kept this rank waiting since the last call; see Stalls.
  double take_waited_seconds() { return stalls_.take_seconds(); }

 private:
  using Unit = model::Unit;
  struct Gathered {
    model::UnitMemory memory;
    Unit unit;
    std::vector<comm::Pending> pending;
    int users = 0;
    bool ready = false;
  };

  void allocate();
  // f(this rank's part of a tensor, the same of `value`), both of one dimension, unless empty.
  template <class F>
  void with_own_part(const std::string& name, const Tensor& value, F f);
  void gather(int unit);
  void open_bucket(int bucket);
  void reduce_bucket(int bucket);
  void median_bucket(int bucket);
  void accumulate_reduced(int bucket);  // waits for a bucket's sum and adds it to this rank's part
  Tensor own_gradient(int bucket) const;
  Range own_space(const Range& flat) const;  // where this rank's part of a range lies in its parts
  void wait(comm::Pending& pending);
  bool whole_weights() const { return options_.zero_stage < 3; }
  bool whole_gradients() const { return options_.zero_stage < 2; }

  model::ModelConfig config_;
  model::ModelLayout layout_;
  ShardOptions options_;
  comm::Comm& comm_;
  Buckets buckets_;
  std::vector<Range> frozen_units_, packed_units_;  // in the flat vectors of those
  Tensor values_;           // trained: whole up to stage 2, this rank's parts in stage 3
  Tensor frozen_, packed_;  // likewise; packed in bytes
  Tensor grads_;            // whole up to stage 1, this rank's parts from stage 2
  std::vector<Unit> weight_views_, grad_views_;  // where whole
  std::map<int, Gathered> gathered_;             // stage 3
  std::map<int, Tensor> open_;                   // stage 2 and 3: a bucket's gradients being made
  std::vector<int> units_left_;                  // by bucket, in this micro-batch
  std::vector<comm::Pending> reducing_;          // by bucket
  std::map<int, Tensor> later_sums_;             // stage 2 and 3: sums of later micro-batches
  std::deque<int> in_flight_;                    // stage 2 and 3: buckets being reduced
  std::vector<comm::Pending> publishing_;        // by bucket
  std::vector<bool> voters_;
  std::vector<OwnedFragment> owned_;
  bool first_micro_batch_ = true, last_micro_batch_ = true;
  Stalls stalls_;
};

}  // namespace mgpu::parallel
