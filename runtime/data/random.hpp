#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

namespace mgpu::data {

// A random number generator with the same output on every machine and with every standard library.
// Its seed is a list of numbers: the recipe's seed, the purpose, the epoch.
class Random {
 public:
  Random(std::initializer_list<std::uint64_t> name);

  std::uint64_t next();
  std::uint64_t below(std::uint64_t limit);  // uniform in [0, limit); limit must be above 0

 private:
  std::uint64_t state_ = 0;
};

// Moves a random choice of all values, in random order, to the first `count` places.
void shuffle_first(std::span<std::uint32_t> values, std::size_t count, Random& random);

inline void shuffle(std::span<std::uint32_t> values, Random& random) {
  shuffle_first(values, values.size(), random);
}

}  // namespace mgpu::data
