#include "runtime/rollout/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace mgpu::rollout {

Sampler::Sampler(const Sampling& sampling, std::uint64_t sequence)
    : sampling_(sampling), state_(sampling.seed ^ (sequence * 0x9e3779b97f4a7c15ULL)) {
  uniform();  // the first number after a simple seed is a poor one
}

double Sampler::uniform() {  // splitmix64
  std::uint64_t x = state_ += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  x ^= x >> 31;
  return static_cast<double>(x >> 11) * 0x1.0p-53;
}

std::int32_t Sampler::draw(std::span<const float> logits) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (sampling_.temperature <= 0) return static_cast<std::int32_t>(best - logits.begin());

  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(), [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  std::vector<double> p(logits.size());
  for (std::size_t i = 0; i < p.size(); ++i)
    p[i] = std::exp((logits[static_cast<std::size_t>(order_[i])] - *best) / sampling_.temperature);
  std::size_t kept = p.size();
  if (sampling_.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(sampling_.top_k));
  double mass = 0;
  std::size_t last = 0;
  const double all = std::accumulate(p.begin(), p.begin() + static_cast<std::ptrdiff_t>(kept), 0.0);
  for (; last < kept; ++last) {
    const bool enough =
        last > 0 && (mass >= sampling_.top_p * all || p[last] < sampling_.min_p * p[0]);
    if (enough) break;
    mass += p[last];
  }
  double target = uniform() * mass;
  for (std::size_t i = 0; i < last; ++i) {
    target -= p[i];
    if (target < 0) return order_[i];
  }
  return order_[last - 1];
}

}  // namespace mgpu::rollout
