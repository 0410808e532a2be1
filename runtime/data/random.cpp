#include "runtime/data/random.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "rendezvous/base/seeds.hpp"

namespace mgpu::data {

using rendezvous::kGoldenStep;
using rendezvous::mix_bits;

Random::Random(std::initializer_list<std::uint64_t> name) {
  for (const std::uint64_t part : name) state_ = mix_bits(state_ + kGoldenStep + mix_bits(part));
}

std::uint64_t Random::next() {
  return mix_bits(state_ += kGoldenStep);
}

std::uint64_t Random::below(std::uint64_t limit) {
  // The high half of the product is uniform except for a few of the lowest products; those are
  // drawn again.
  __extension__ using Wide = unsigned __int128;
  const std::uint64_t uneven = (0 - limit) % limit;
  while (true) {
    const Wide product = static_cast<Wide>(next()) * limit;
    if (static_cast<std::uint64_t>(product) >= uneven)
      return static_cast<std::uint64_t>(product >> 64);
  }
}

void shuffle_first(std::span<std::uint32_t> values, std::size_t count, Random& random) {
  for (std::size_t i = 0; i + 1 < values.size() && i < count; ++i)
    std::swap(values[i], values[i + random.below(values.size() - i)]);
}

}  // namespace mgpu::data
