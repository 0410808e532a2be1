#include "runtime/parallel/buckets.hpp"

#include <algorithm>

namespace mgpu::parallel {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t to) {
  return (n + to - 1) / to * to;
}

void add_overlap(std::vector<Fragment>& out, const model::UnitLayout& unit, const Range& at,
                 const Range& owned, std::int64_t owned_begin, int bucket) {
  for (const auto& slot : unit.trained.slots) {
    const auto begin = std::max(at.begin + slot.offset, owned.begin);
    const auto end = std::min(at.begin + slot.offset + slot.numel, owned.end);
    if (begin >= end) continue;
    out.push_back({slot.name, begin - at.begin - slot.offset, end - begin, slot.numel, begin,
                   owned_begin + begin - owned.begin, slot.decay, slot.rate, bucket});
  }
}

}  // namespace

Buckets make_buckets(const model::ModelLayout& layout, int world, std::int64_t wanted) {
  Buckets result;
  const auto unit_align = model::FlatLayout::kAlign * world;
  for (const auto& unit : layout.units) {
    const auto size = round_up(unit.trained.size, unit_align);
    result.units.push_back({result.size, result.size + size});
    result.size += size;
  }
  for (int unit = 0; unit < static_cast<int>(result.units.size()); ++unit) {
    const auto range = result.units[static_cast<std::size_t>(unit)];
    const bool alone = unit <= 1 || result.buckets.back().flat.size() + range.size() > wanted;
    if (alone) {
      result.buckets.push_back({unit, unit, range});
    } else {
      result.buckets.back().last_unit = unit;
      result.buckets.back().flat.end = range.end;
    }
    result.bucket_of.push_back(static_cast<int>(result.buckets.size()) - 1);
  }
  return result;
}

Range part(const Range& range, int rank, int world) {
  const auto size = range.size() / world;
  return {range.begin + rank * size, range.begin + (rank + 1) * size};
}

std::vector<Fragment> owned_fragments(const model::ModelLayout& layout, const Buckets& buckets,
                                      int rank, int world, bool sharded) {
  std::vector<Fragment> result;
  std::int64_t owned_begin = 0;
  for (const auto& bucket : buckets.buckets) {
    const auto owned = sharded ? part(bucket.flat, rank, world) : bucket.flat;
    for (int unit = bucket.first_unit; unit <= bucket.last_unit; ++unit) {
      const auto index = static_cast<std::size_t>(unit);
      add_overlap(result, layout.units[index], buckets.units[index], owned, owned_begin,
                  buckets.bucket_of[index]);
    }
    owned_begin += owned.size();
  }
  return result;
}

std::int64_t owned_size(const Buckets& buckets, int world, bool sharded) {
  return sharded ? buckets.size / world : buckets.size;
}

}  // namespace mgpu::parallel
