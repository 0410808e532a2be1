#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mgpu::rollout {

struct Sampling {
  double temperature = 1;  // 0: the most likely token
  std::int64_t top_k = 0;  // 0: all
  double top_p = 1;
  double min_p = 0;
  std::uint64_t seed = 0;
};

// Draws tokens of one sequence: what it draws depends on the seed, the sequence's number and the
// place in it, not on what is computed beside it.
class Sampler {
 public:
  Sampler(const Sampling& sampling, std::uint64_t sequence);
  std::int32_t draw(std::span<const float> logits);

 private:
  double uniform();

  Sampling sampling_;
  std::uint64_t state_;
  std::vector<std::int32_t> order_;  // kept to save allocations
};

}  // namespace mgpu::rollout
