#include "runtime/parallel/shards.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace mgpu::parallel {
namespace {

std::vector<Range> ranges_of(const model::ModelLayout& layout,
                             model::FlatLayout model::UnitLayout::* kind, int world) {
  std::vector<Range> result;
  std::int64_t at = 0;
  const auto align = model::FlatLayout::kAlign * world;
  for (const auto& unit : layout.units) {
    const auto size = ((unit.*kind).size + align - 1) / align * align;
    result.push_back({at, at + size});
    at += size;
  }
  return result;
}

// `memory` holds the elements `owned` of a flat vector, in which a tensor lies at `tensor`. Returns
// their common part.
Shards::OwnPart overlap(const Tensor& memory, const Range& owned, const Range& tensor) {
  const auto from = std::max(tensor.begin, owned.begin);
  const auto to = std::min(tensor.end, owned.end);
  if (from >= to) return {memory.narrow(0, 0, 0), 0, tensor.size()};
  return {memory.narrow(0, from - owned.begin, to - from), from - tensor.begin, tensor.size()};
}

}  // namespace

Shards::Shards(const model::ModelConfig& config, model::ModelLayout layout,
               const ShardOptions& options, comm::Comm& comm)
    : config_(config),
      layout_(std::move(layout)),
      options_(options),
      comm_(comm),
      stalls_(options.device) {
  const auto wanted =
      options_.bucket_elements > 0 ? options_.bucket_elements : kDefaultBucketElements;
  buckets_ = make_buckets(layout_, comm_.world(), options_.zero_stage == 3 ? 0 : wanted);
  frozen_units_ = ranges_of(layout_, &model::UnitLayout::frozen, comm_.world());
  packed_units_ = ranges_of(layout_, &model::UnitLayout::packed, comm_.world());
  place_on_host();
  allocate();
}

Shards::~Shards() = default;

// The other frozen units follow in the flat vector as if this one were empty.
void Shards::place_on_host() {
  const auto size = frozen_units_.front().size();
  if (!options_.host_memory || size == 0) return;
  on_host_ = options_.host_memory(size, options_.dtype);
  for (auto& unit : frozen_units_) unit = {std::max(unit.begin, size) - size, unit.end - size};
}

void Shards::allocate() {
  const auto on_device = at::TensorOptions(options_.device);
  const auto world = comm_.world();
  const auto kept = [&](std::int64_t size, at::ScalarType type) {
    return at::zeros({whole_weights() ? size : size / world}, on_device.dtype(type));
  };
  values_ = kept(buckets_.size, options_.dtype);
  frozen_ = kept(frozen_units_.back().end, options_.dtype);
  packed_ = kept(packed_units_.back().end, at::kByte);
  if (options_.trains) {
    grads_ = at::zeros({whole_gradients() ? buckets_.size : buckets_.size / world},
                       on_device.dtype(options_.grad_dtype));
  }
  const auto units = layout_.units.size();
  weight_views_.resize(units);
  grad_views_.resize(units);
  for (std::size_t i = 0; i < units; ++i) {
    const int unit = static_cast<int>(i);
    if (whole_weights()) {
      weight_views_[i] = model::bind(config_, layout_.units[i], unit,
                                     {narrow(values_, buckets_.units[i]),
                                      on_host(unit) ? on_host_ : narrow(frozen_, frozen_units_[i]),
                                      narrow(packed_, packed_units_[i])});
    }
    if (options_.trains && whole_gradients()) {
      grad_views_[i] =
          model::bind(config_, layout_.units[i], unit, {narrow(grads_, buckets_.units[i]), {}, {}});
    }
  }
  reducing_.resize(buckets_.buckets.size());
  gathering_.resize(buckets_.buckets.size());
  units_left_.resize(buckets_.buckets.size());
  if (!options_.trains) return;
  for (auto& f : owned_fragments(layout_, buckets_, comm_.rank(), world, sharded())) {
    const auto value_at = whole_weights() ? f.flat : f.owned;
    const auto grad_at = whole_gradients() ? f.flat : f.owned;
    owned_.push_back({f, values_.narrow(0, value_at, f.size), grads_.narrow(0, grad_at, f.size)});
  }
}

Range Shards::owned_range(const Range& flat) const {
  const auto world = comm_.world();
  return {flat.begin / world, flat.end / world};
}

void Shards::wait(comm::Pending& pending) {
  if (pending.under_way()) stalls_.measure([&] { pending.wait(); });
}

const model::Unit& Shards::weights(int unit) {
  const auto index = static_cast<std::size_t>(unit);
  if (whole_weights()) {
    wait(gathering_[static_cast<std::size_t>(buckets_.bucket_of[index])]);
    return weight_views_[index];
  }
  gather(unit);
  auto& gathered = gathered_[unit];
  if (!gathered.ready) {
    for (auto& pending : gathered.pending) wait(pending);
    gathered.unit = model::bind(config_, layout_.units[index], unit, gathered.memory);
    gathered.ready = true;
  }
  ++gathered.users;
  return gathered.unit;
}

void Shards::release(int unit) {
  if (whole_weights()) return;
  const auto found = gathered_.find(unit);
  if (--found->second.users == 0) gathered_.erase(found);
}

void Shards::prefetch(int unit) {
  if (!whole_weights()) gather(unit);
}

void Shards::gather(int unit) {
  if (gathered_.contains(unit)) return;
  const auto index = static_cast<std::size_t>(unit);
  const std::tuple<Tensor model::UnitMemory::*, const Tensor&, const Range&> kinds[] = {
      {&model::UnitMemory::trained, values_, buckets_.units[index]},
      {&model::UnitMemory::frozen, frozen_, frozen_units_[index]},
      {&model::UnitMemory::packed, packed_, packed_units_[index]}};
  // If memory runs out, it does so before the first collective: none writes to memory that the
  // exception has freed.
  Gathered allocated;
  for (const auto& [member, parts, range] : kinds)
    allocated.memory.*member = at::empty({range.size()}, parts.options());
  if (on_host(unit)) allocated.memory.frozen = on_host_;
  auto& gathered = gathered_.emplace(unit, std::move(allocated)).first->second;
  for (const auto& [member, parts, range] : kinds) {
    if (range.size() == 0) continue;
    gathered.pending.push_back(comm_.all_gather(
        gathered.memory.*member, narrow(parts, owned_range(range)), "all-gather of weights"));
  }
}

void Shards::update(const std::function<void(int)>& update) {
  for (int bucket = 0; bucket < static_cast<int>(buckets_.buckets.size()); ++bucket) {
    update(bucket);
    gather_updated(bucket);
  }
}

void Shards::gather_updated(int bucket) {
  const auto index = static_cast<std::size_t>(bucket);
  const auto& flat = buckets_.buckets[index].flat;
  if (!sharded() || !whole_weights() || flat.size() == 0) return;
  gathering_[index] = comm_.all_gather(narrow(values_, flat),
                                       narrow(values_, part(flat, comm_.rank(), comm_.world())),
                                       "all-gather of updated weights");
}

Shards::OwnPart Shards::own_part(const std::string& name) const {
  for (std::size_t i = 0; i < layout_.units.size(); ++i) {
    const auto& unit = layout_.units[i];
    const std::tuple<const model::FlatLayout&, const Range&, const Tensor&> kinds[] = {
        {unit.trained, buckets_.units[i], values_},
        {unit.frozen, frozen_units_[i], frozen_},
        {unit.packed, packed_units_[i], packed_}};
    for (const auto& [flat, range, memory] : kinds) {
      const auto* slot = flat.find(name);
      if (slot == nullptr) continue;
      if (&flat == &unit.frozen && on_host(static_cast<int>(i)))
        return {on_host_.narrow(0, slot->offset, slot->numel), 0, slot->numel};
      const auto begin = range.begin + slot->offset;
      if (whole_weights()) return {memory.narrow(0, begin, slot->numel), 0, slot->numel};
      return overlap(narrow(memory, owned_range(range)),
                     parallel::part(range, comm_.rank(), comm_.world()),
                     {begin, begin + slot->numel});
    }
  }
  throw std::logic_error("the model has no tensor " + name);
}

template <class F>
void Shards::with_own_part(const std::string& name, const Tensor& value, F f) {
  const auto own = own_part(name);
  if (value.numel() != own.whole) throw std::logic_error(name + " has another size");
  if (const auto size = own.memory.numel(); size > 0)
    f(own.memory, value.reshape({-1}).narrow(0, own.begin, size));
}

void Shards::set(const std::string& name, const Tensor& value) {
  with_own_part(name, value, [](const Tensor& own, const Tensor& part) { own.copy_(part); });
}

void Shards::mix(const std::string& name, const Tensor& value, double part) {
  with_own_part(name, value, [&](const Tensor& own, const Tensor& other) {
    own.lerp_(other.to(own.options()), part);
  });
}

void Shards::visit(bool trained,
                   const std::function<void(const std::string&, const Tensor&)>& visit) {
  for (std::size_t i = 0; i < layout_.units.size(); ++i) {
    const int unit = static_cast<int>(i);
    const auto& flat_layout = trained ? layout_.units[i].trained : layout_.units[i].frozen;
    if (flat_layout.slots.empty()) continue;
    weights(unit);
    const auto& range = trained ? buckets_.units[i] : frozen_units_[i];
    const auto flat = !trained && on_host(unit) ? on_host_
                      : whole_weights()         ? narrow(trained ? values_ : frozen_, range)
                      : trained                 ? gathered_[unit].memory.trained
                                                : gathered_[unit].memory.frozen;
    for (const auto& slot : flat_layout.slots)
      visit(slot.name, flat.narrow(0, slot.offset, slot.numel).view(slot.shape));
    release(unit);
  }
}

void Shards::visit_owned(const std::vector<Tensor>& parts,
                         const std::function<void(const std::string&, const Tensor&)>& visit) {
  const auto fp32 = at::TensorOptions(options_.device).dtype(at::kFloat);
  std::size_t next = 0;
  std::int64_t begin = 0;  // of the bucket in the vector of what this rank owns
  for (const auto& bucket : buckets_.buckets) {
    if (bucket.flat.size() == 0) continue;
    const auto size = bucket.flat.size() / (sharded() ? comm_.world() : 1);
    Tensor whole = at::zeros({size}, fp32);
    for (; next < owned_.size() && owned_[next].fragment.owned < begin + size; ++next) {
      const auto& fragment = owned_[next].fragment;
      whole.narrow(0, fragment.owned - begin, fragment.size).copy_(parts[next]);
    }
    begin += size;
    if (sharded()) {
      const Tensor own = std::exchange(whole, at::empty({bucket.flat.size()}, fp32));
      auto gathering = comm_.all_gather(whole, own, "all-gather of master weights");
      wait(gathering);
    }
    for (int unit = bucket.first_unit; unit <= bucket.last_unit; ++unit) {
      const auto index = static_cast<std::size_t>(unit);
      const auto unit_begin = buckets_.units[index].begin - bucket.flat.begin;
      for (const auto& slot : layout_.units[index].trained.slots)
        visit(slot.name, whole.narrow(0, unit_begin + slot.offset, slot.numel).view(slot.shape));
    }
  }
}

}  // namespace mgpu::parallel
