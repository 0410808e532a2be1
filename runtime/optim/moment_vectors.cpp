#include "runtime/optim/moment_vectors.hpp"

#include <ATen/ops/zeros.h>

#include "runtime/checkpoint/dynamic_levels.hpp"

namespace mgpu::optim {
namespace {

using parallel::Fragment;

constexpr std::int64_t kAlign = 64;  // elements

bool is_coded(const Fragment& f, Moments moments) {
  return moments == Moments::eight_bit && f.whole >= kFewestCoded;
}

std::int64_t lead_of(const Fragment& f) {
  return f.tensor_begin % ops::kMomentBlock;
}

// The positions of small fragments, which stay in fp32 while others are in 8 bits.
struct SmallPlaces {
  std::vector<std::int64_t> begin;  // of each small fragment
  std::int64_t size = 0;
};

SmallPlaces place_small(const std::vector<parallel::OwnedFragment>& owned) {
  SmallPlaces places;
  std::int64_t end_before =
      -1;  // in the vector of all owned elements; -1: the previous fragment is not small
  for (const auto& o : owned) {
    const auto& f = o.fragment;
    if (is_coded(f, Moments::eight_bit)) {
      end_before = -1;
      continue;
    }
    const auto begin = end_before >= 0
                           ? places.size + f.owned - end_before
                           : (places.size + kAlign - 1) / kAlign * kAlign + f.owned % kAlign;
    places.begin.push_back(begin);
    places.size = begin + f.size;
    end_before = f.owned + f.size;
  }
  return places;
}

}  // namespace

Tensor first_moment_table(at::Device device) {
  return ops::moment_table(checkpoint::dynamic_levels(), device);
}

Tensor second_moment_table(at::Device device) {
  return ops::moment_table(checkpoint::positive_dynamic_levels(), device);
}

MomentVectors::MomentVectors(const std::vector<parallel::OwnedFragment>& owned,
                             std::int64_t owned_size, Moments moments, const Tensor& table) {
  const auto on_device = owned.front().value.options();
  if (moments != Moments::eight_bit) {
    floats_ = at::zeros({owned_size},
                        on_device.dtype(moments == Moments::bf16 ? at::kBFloat16 : at::kFloat));
    for (const auto& o : owned)
      fragments_.push_back({floats_.narrow(0, o.fragment.owned, o.fragment.size), {}, {}, 0});
    return;
  }
  const auto places = place_small(owned);
  std::int64_t blocks = 0;
  for (const auto& o : owned)
    if (is_coded(o.fragment, moments))
      blocks += ops::moment_blocks(lead_of(o.fragment), o.fragment.size);
  floats_ = at::zeros({places.size}, on_device.dtype(at::kFloat));
  codes_ = at::zeros({owned_size}, on_device.dtype(at::kByte));
  scales_ = at::zeros({blocks}, on_device.dtype(at::kFloat));
  std::size_t small = 0;
  std::int64_t block = 0;
  for (const auto& o : owned) {
    const auto& f = o.fragment;
    if (!is_coded(f, moments)) {
      fragments_.push_back({floats_.narrow(0, places.begin[small++], f.size), {}, {}, 0});
      continue;
    }
    const auto count = ops::moment_blocks(lead_of(f), f.size);
    fragments_.push_back(
        {codes_.narrow(0, f.owned, f.size), scales_.narrow(0, block, count), table, lead_of(f)});
    block += count;
  }
}

std::int64_t MomentVectors::bytes() const {
  std::size_t sum = floats_.nbytes();
  if (codes_.defined()) sum += codes_.nbytes() + scales_.nbytes();
  return static_cast<std::int64_t>(sum);
}

}  // namespace mgpu::optim
