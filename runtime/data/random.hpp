#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

namespace mgpu::data {

// A stream of numbers that is the same on every machine and with every standard library, named by
// a few numbers: the seed, what it is for, the epoch.
class Random {
 public:
  Random(std::initializer_list<std::uint64_t> name);

  std::uint64_t next();
  std::uint64_t below(std::uint64_t limit);  // each equally likely; limit is above 0

 private:
  std::uint64_t state_ = 0;
};

// After this the first `count` values are a random choice of all, in random order.
void shuffle_first(std::span<std::uint32_t> values, std::size_t count, Random& random);

inline void shuffle(std::span<std::uint32_t> values, Random& random) {
  shuffle_first(values, values.size(), random);
}

}  // namespace mgpu::data
