// The part of Shards that handles gradients; shards.cpp handles weights.
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/median.h>

#include <algorithm>

#include "runtime/parallel/shards.hpp"

namespace mgpu::parallel {
namespace {

// In stages 2 and 3 this many buckets may be in reduction while backward fills another one. It
// bounds the memory of whole gradients.
constexpr std::size_t kReducing = 1;

// The (lower) median of each column. ATen also returns in which row it is; on GPUs this choice
// among equal values may vary, so ATen refuses medians if operations must be deterministic. The
// values never vary.
Tensor column_medians(const Tensor& rows) {
  struct Allowed {
    at::Context& context = at::globalContext();
    bool deterministic = context.deterministicAlgorithms();
    bool warn_only = context.deterministicAlgorithmsWarnOnly();
    Allowed() { context.setDeterministicAlgorithms(false, false); }
    Allowed(const Allowed&) = delete;
    Allowed& operator=(const Allowed&) = delete;
    ~Allowed() { context.setDeterministicAlgorithms(deterministic, warn_only); }
  };
  const Allowed allowed;
  return std::get<0>(at::median(rows, 0));
}

}  // namespace

void Shards::begin_micro_batch(bool first, bool last) {
  first_micro_batch_ = first;
  last_micro_batch_ = last;
  opens_first_bucket_ = true;
  if (whole_gradients()) {
    for (auto& gradients : grad_views_) model::continue_gradients(gradients);
    begun_.assign(grad_views_.size(), !first);
  }
  for (std::size_t i = 0; i < buckets_.buckets.size(); ++i) {
    const auto& bucket = buckets_.buckets[i];
    units_left_[i] = bucket.last_unit - bucket.first_unit + 1;
  }
}

const model::Unit& Shards::gradients(int unit) {
  const auto index = static_cast<std::size_t>(unit);
  if (!whole_gradients()) {
    open_bucket(buckets_.bucket_of[index]);
  } else if (!begun_[index]) {
    begun_[index] = true;
    model::begin_gradients(config_, grad_views_[index], gradient_memory(unit));
  }
  return grad_views_[index];
}

Tensor Shards::gradient_memory(int unit) const {
  const auto index = static_cast<std::size_t>(unit);
  const auto& range = buckets_.units[index];
  if (whole_gradients()) return narrow(grads_, range);
  const int bucket = buckets_.bucket_of[index];
  const auto begin = buckets_.buckets[static_cast<std::size_t>(bucket)].flat.begin;
  return narrow(open_buckets_.at(bucket), {range.begin - begin, range.end - begin});
}

void Shards::open_bucket(int bucket) {
  if (open_buckets_.contains(bucket)) return;
  // The first bucket of a micro-batch is that of the head, where memory is fullest. The buckets of
  // the micro-batch before were reduced during forward.
  const std::size_t reducing = opens_first_bucket_ ? 0 : kReducing;
  opens_first_bucket_ = false;
  while (in_flight_.size() > reducing) {
    accumulate_reduced(in_flight_.front());
    in_flight_.pop_front();
  }
  const auto& b = buckets_.buckets[static_cast<std::size_t>(bucket)];
  open_buckets_.emplace(bucket, at::empty({b.flat.size()}, grads_.options()));
  for (int unit = b.first_unit; unit <= b.last_unit; ++unit) {
    const auto index = static_cast<std::size_t>(unit);
    const Tensor memory = gradient_memory(unit);
    grad_views_[index] = model::bind(config_, layout_.units[index], unit, {memory, {}, {}});
    model::begin_gradients(config_, grad_views_[index], memory);
  }
}

void Shards::gradients_done(int unit) {
  const int bucket = buckets_.bucket_of[static_cast<std::size_t>(unit)];
  if (--units_left_[static_cast<std::size_t>(bucket)] > 0) return;
  if (!whole_gradients() || (last_micro_batch_ && options_.overlap)) reduce_bucket(bucket);
}

void Shards::skip_micro_batch() {
  for (int unit = static_cast<int>(layout_.units.size()) - 1; unit >= 0; --unit) {
    if (whole_weights())
      weights(unit);  // the gathers of update() must be waited for before the next update
    gradients(unit);
    if (!whole_gradients() || first_micro_batch_) gradient_memory(unit).zero_();
    gradients_done(unit);
  }
}

void Shards::abandon_micro_batch() {
  for (auto& pending : reducing_) wait(pending);
  for (auto& [unit, gathered] : gathered_)
    for (auto& pending : gathered.pending) wait(pending);
  gathered_.clear();
  for (std::size_t unit = 0; unit < grad_views_.size(); ++unit)
    if (open_buckets_.contains(buckets_.bucket_of[unit])) grad_views_[unit] = {};
  open_buckets_.clear();
}

Tensor Shards::own_gradient(int bucket) const {
  const auto& flat = buckets_.buckets[static_cast<std::size_t>(bucket)].flat;
  return whole_gradients() ? narrow(grads_, part(flat, comm_.rank(), comm_.world()))
                           : narrow(grads_, owned_range(flat));
}

void Shards::reduce_bucket(int bucket) {
  const auto index = static_cast<std::size_t>(bucket);
  const auto& flat = buckets_.buckets[index].flat;
  if (flat.size() == 0) return;
  if (options_.reduce == Reduce::median) {
    median_bucket(bucket);
  } else if (options_.zero_stage == 0) {
    reducing_[index] = comm_.all_reduce(narrow(grads_, flat), "all-reduce of gradients");
  } else if (options_.zero_stage == 1) {
    reducing_[index] = comm_.reduce_scatter(own_gradient(bucket), narrow(grads_, flat),
                                            "reduce-scatter of gradients");
  } else {
    if (const auto busy = std::find(in_flight_.begin(), in_flight_.end(), bucket);
        busy != in_flight_.end()) {  // of the previous micro-batch
      accumulate_reduced(bucket);
      in_flight_.erase(busy);
    }
    open_bucket(bucket);
    const Tensor whole = open_buckets_.at(bucket);
    open_buckets_.erase(bucket);
    for (int unit = buckets_.buckets[index].first_unit; unit <= buckets_.buckets[index].last_unit;
         ++unit) {
      grad_views_[static_cast<std::size_t>(unit)] = {};
    }
    const Tensor own = own_gradient(bucket);
    const Tensor to = first_micro_batch_ ? own : at::empty_like(own);
    reducing_[index] = comm_.reduce_scatter(to, whole, "reduce-scatter of gradients");
    if (!first_micro_batch_) later_sums_.emplace(bucket, to);
    in_flight_.push_back(bucket);
    if (!options_.overlap) {
      accumulate_reduced(bucket);
      in_flight_.pop_back();
    }
  }
}

void Shards::accumulate_reduced(int bucket) {
  wait(reducing_[static_cast<std::size_t>(bucket)]);
  const auto found = later_sums_.find(bucket);
  if (found == later_sums_.end()) return;
  own_gradient(bucket).add_(found->second);
  later_sums_.erase(found);
}

// Replaces a bucket's gradients by their element-wise (lower) median over the ranks that have
// target tokens: every rank receives its slice from all ranks and computes the median; in stage 0
// the slices are then gathered. The traffic is that of an all-reduce.
void Shards::median_bucket(int bucket) {
  const auto& flat = buckets_.buckets[static_cast<std::size_t>(bucket)].flat;
  const Tensor whole = narrow(grads_, flat);
  Tensor slices = at::empty_like(whole);
  auto exchange = comm_.all_to_all(slices, whole, "all-to-all of gradients for their median");
  wait(exchange);
  slices = slices.view({comm_.world(), -1});
  std::vector<std::int64_t> voting;
  for (std::size_t rank = 0; rank < voters_.size(); ++rank)
    if (voters_[rank]) voting.push_back(static_cast<std::int64_t>(rank));
  const auto which =
      at::from_blob(voting.data(), {static_cast<std::int64_t>(voting.size())}, at::kLong)
          .to(slices.device());
  if (!voting.empty()) slices = slices.index_select(0, which);
  const Tensor own = own_gradient(bucket);
  own.copy_(column_medians(slices));
  if (options_.zero_stage == 0) {
    auto gather = comm_.all_gather(whole, own, "all-gather of the gradients' median");
    wait(gather);
  }
}

void Shards::abandon_step() {
  for (auto& pending : reducing_) pending.abandon();
}

void Shards::finish_gradients() {
  if (whole_gradients() && !options_.overlap) {
    for (int i = static_cast<int>(buckets_.buckets.size()) - 1; i >= 0; --i) reduce_bucket(i);
  }
  for (auto& pending : reducing_) wait(pending);
  for (const int bucket : in_flight_) accumulate_reduced(bucket);
  in_flight_.clear();
}

}  // namespace mgpu::parallel
