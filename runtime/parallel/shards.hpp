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
#include "runtime/parallel/bucket_size.hpp"
#include "runtime/parallel/buckets.hpp"
#include "runtime/parallel/stalls.hpp"

namespace mgpu::parallel {

using at::Tensor;

// The elements of a flat vector that a range covers.
inline Tensor narrow(const Tensor& flat, const Range& range) {
  return flat.narrow(0, range.begin, range.size());
}

enum class Reduce { sum, median };

struct ShardOptions {
  int zero_stage = 0;
  at::Device device = at::kCPU;
  at::ScalarType dtype = at::kFloat;       // of the weights that the model computes with
  at::ScalarType grad_dtype = at::kFloat;  // gradients are accumulated and reduced in it
  std::int64_t bucket_elements = 0;        // 0: a default
  bool overlap = true;                     // reduce during backward; false: after it
  Reduce reduce = Reduce::sum;
  bool trains = true;  // false: weights only, no memory for gradients
  // Returns host memory for this many elements. If set, a frozen embedding is whole in this memory
  // on every rank, in every stage, and the model looks its rows up there.
  std::function<Tensor(std::int64_t, at::ScalarType)> host_memory;
};

// A fragment and its memory. The optimizer updates these, and checkpoints store their states.
struct OwnedFragment {
  Fragment fragment;
  Tensor value;  // 1-d view, compute dtype
  Tensor grad;   // 1-d view; the gradient of the whole step once finish_gradients() has returned
};

// Stores this rank's share of a model's weights and gradients and moves data between the ranks.
// What a rank stores depends on the ZeRO stage:
//   0  all weights and gradients; gradients are all-reduced and every rank updates everything
//   1  all weights and gradients; each rank receives the summed gradients of its part only, updates
//      this part and gathers the updated parts of the other ranks
//   2  as 1, but it stores only its part of the gradients: backward reduces each bucket of each
//      micro-batch as soon as the bucket is complete
//   3  its part of the weights and gradients; weights are gathered unit by unit, one unit ahead,
//      and freed after use
//
// One step calls, in this order:
//   for each micro-batch: begin_micro_batch(), then forward and backward, which call weights(),
//     release(), prefetch(), gradients() and gradients_done()
//   finish_gradients()
//   update(), in which the optimizer updates owned()
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

  // Starts a micro-batch. With `first` the gradients start from zero; with `last` the gradients of
  // this micro-batch complete the step, so their reduction may start.
  void begin_micro_batch(bool first, bool last);
  // Replaces forward and backward of a micro-batch that contributes no gradient. In stage 3 all
  // ranks must skip the same micro-batches.
  void skip_micro_batch();
  // Ends a micro-batch whose forward or backward has thrown an exception: waits for the collectives
  // that it has started, and frees its memory. The gradients of the step are of no use afterwards.
  void abandon_micro_batch();
  // For Reduce::median: voters[rank] is whether the rank has target tokens in this step. The
  // gradients of the other ranks are left out of the median.
  void set_voters(std::vector<bool> voters) { voters_ = std::move(voters); }
  // Waits until the step's gradients are reduced: owned() then holds them.
  void finish_gradients();
  std::vector<OwnedFragment>& owned() { return owned_; }
  bool sharded() const { return options_.zero_stage > 0; }
  // Calls update(bucket) for each bucket, which queues the update of its fragments of owned(), in
  // the order in which forward needs the weights. Starts gathering the parts that other ranks have
  // updated (stages 1 and 2); weights() waits for them when they are needed.
  void update(const std::function<void(int bucket)>& update);

  // Drops a step that an exception has interrupted: its collectives are never waited for. For stage
  // 0. They may write to the gradients until their connections are closed.
  void abandon_step();
  // All trained weights, one-dimensional. Only where the rank has them whole (stages 0 to 2).
  Tensor trained_weights() const { return values_; }

  // Sets the tensor `name`: stores this rank's part of the whole tensor `value`. For a tensor in 4
  // bits, `value` holds its bytes.
  void set(const std::string& name, const Tensor& value);
  // This rank's part of the tensor `name`, for a caller that fills it itself: one-dimensional, from
  // element `begin` of the tensor on; of size 0 if the rank has no part.
  struct OwnPart {
    Tensor memory;
    std::int64_t begin = 0, whole = 0;  // `whole`: elements of the tensor
  };
  OwnPart own_part(const std::string& name) const;
  // Interpolates: moves this rank's part of the tensor `name` by the fraction `part` towards the
  // whole tensor `value`.
  void mix(const std::string& name, const Tensor& value, double part);
  // Calls visit(name, whole tensor) for every trained or every frozen tensor, in order. All ranks
  // must call it together. A tensor is valid during its call only.
  void visit(bool trained, const std::function<void(const std::string&, const Tensor&)>& visit);
  // The same for an fp32 vector that the ranks keep beside their trained weights, such as the
  // master weights: parts[i] is that of owned()[i]. Gathers a bucket at a time.
  void visit_owned(const std::vector<Tensor>& parts,
                   const std::function<void(const std::string&, const Tensor&)>& visit);

  const model::ModelLayout& layout() const { return layout_; }
  const Buckets& buckets() const { return buckets_; }
  at::Device device() const { return options_.device; }
  at::ScalarType dtype() const { return options_.dtype; }
  // The seconds that this rank has waited for collectives since the last call; see Stalls.
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

  void place_on_host();
  void allocate();
  // Calls f(this rank's part of the tensor `name`, the same part of `value`), both one-dimensional,
  // unless the part is empty.
  template <class F>
  void with_own_part(const std::string& name, const Tensor& value, F f);
  void gather(int unit);
  void gather_updated(int bucket);
  void open_bucket(int bucket);
  void reduce_bucket(int bucket);
  void median_bucket(int bucket);
  // Waits for a bucket's reduction and adds the sum to this rank's gradients.
  void accumulate_reduced(int bucket);
  Tensor own_gradient(int bucket) const;
  Tensor gradient_memory(int unit) const;  // of the whole gradients that are there
  // This rank's part of a range, as offsets in the vectors that hold parts only.
  Range owned_range(const Range& flat) const;
  void wait(comm::Pending& pending);
  bool whole_weights() const { return options_.zero_stage < 3; }
  bool whole_gradients() const { return options_.zero_stage < 2; }
  // Whether the frozen tensors of this unit are in host memory.
  bool on_host(int unit) const { return unit == model::kEmbeddingUnit && on_host_.defined(); }

  model::ModelConfig config_;
  model::ModelLayout layout_;
  ShardOptions options_;
  comm::Comm& comm_;
  Buckets buckets_;
  std::vector<Range> frozen_units_, packed_units_;  // ranges of units in frozen_ and packed_
  Tensor values_;           // trained weights: whole up to stage 2, this rank's part in stage 3
  Tensor frozen_, packed_;  // the same; packed counts bytes
  Tensor on_host_;          // the frozen embedding, if it is in host memory; else undefined
  Tensor grads_;            // whole up to stage 1, this rank's part from stage 2
  std::vector<Unit> weight_views_, grad_views_;  // where the vectors are whole
  std::map<int, Gathered> gathered_;             // stage 3: units that are gathered
  std::vector<bool> begun_;                      // where whole: the unit has gradients of this step
  std::map<int, Tensor> open_buckets_;   // stages 2 and 3: whole gradients of buckets in backward
  std::vector<int> units_left_;          // by bucket: units without gradients yet
  std::vector<comm::Pending> reducing_;  // by bucket
  std::map<int, Tensor> later_sums_;     // stages 2 and 3: results of all but the first micro-batch
  std::deque<int> in_flight_;            // stages 2 and 3: buckets being reduced
  std::vector<comm::Pending> gathering_;  // by bucket
  std::vector<bool> voters_;
  std::vector<OwnedFragment> owned_;
  bool first_micro_batch_ = true, last_micro_batch_ = true;
  bool opens_first_bucket_ = true;  // of this micro-batch
  Stalls stalls_;
};

}  // namespace mgpu::parallel
