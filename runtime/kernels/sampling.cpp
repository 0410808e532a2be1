#include "runtime/kernels/sampling.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "runtime/kernels/rollout_on_gpu.hpp"

namespace mgpu::ops {
namespace {

// Philox4x32 with 10 rounds: 64 random bits for a key and a counter.
std::uint64_t philox(std::uint64_t key, std::uint32_t counter) {
  std::array<std::uint32_t, 4> c{counter, 0, 0, 0};
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * c[0], b = std::uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(a)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return std::uint64_t{c[0]} << 32 | c[1];
}

// A uniform number in [0, 1).
double uniform(std::uint64_t key, std::uint32_t counter) {
  return static_cast<double>(philox(key, counter) >> 11) * 0x1p-53;
}

class Row {
 public:
  Row(std::span<const float> logits, const Sampling& sampling)
      : logits_(logits),
        sampling_(sampling),
        sharpness_(sampling.temperature > 0 ? 1 / sampling.temperature : 1) {}

  // Reads the logits. Returns false if they have no finite softmax.
  bool read() {
    best_ = 0;
    bool whole = true;
    for (std::size_t i = 0; i < logits_.size(); ++i) {
      whole = whole && !std::isnan(logits_[i]);
      if (logits_[i] > logits_[best_]) best_ = i;
    }
    if (!whole || !std::isfinite(logits_[best_])) return false;
    total_ = 0;
    for (const float logit : logits_) total_ += mass(logit);
    return true;
  }

  std::size_t draw(std::uint64_t seed, std::uint32_t counter, std::vector<float>& scratch) const {
    if (sampling_.temperature <= 0) return best_;
    const float least = threshold(scratch);
    double kept = 0;
    for (const float logit : logits_)
      if (logit >= least) kept += mass(logit);
    double point = uniform(seed, counter) * kept;
    std::size_t last = best_;
    for (std::size_t i = 0; i < logits_.size(); ++i) {
      if (logits_[i] < least) continue;
      const double weight = mass(logits_[i]);
      if (weight > 0) last = i;
      if (point < weight) return i;
      point -= weight;
    }
    return last;  // rounding has left nothing beyond the last candidate
  }

  float log_prob(std::size_t token) const {
    return static_cast<float>(distance(logits_[token]) - std::log(total_));
  }

 private:
  double distance(float logit) const {
    return (static_cast<double>(logit) - static_cast<double>(logits_[best_])) * sharpness_;
  }
  double mass(float logit) const { return std::exp(distance(logit)); }

  // The least logit that the filters leave.
  float threshold(std::vector<float>& sorted) const {
    float least = -std::numeric_limits<float>::infinity();
    const auto k = static_cast<std::size_t>(sampling_.top_k);
    const bool some = k > 0 && k < logits_.size();
    if (some || sampling_.top_p < 1) {
      sorted.assign(logits_.begin(), logits_.end());
      const auto end = some ? sorted.begin() + static_cast<std::ptrdiff_t>(k) : sorted.end();
      std::partial_sort(sorted.begin(), end, sorted.end(), std::greater<>());
      if (some) least = sorted[k - 1];
    }
    if (sampling_.top_p < 1) {
      double all = 0;
      for (const float logit : logits_)
        if (logit >= least) all += mass(logit);
      double sum = 0;
      for (const float logit : sorted) {
        if (logit < least) break;
        sum += mass(logit);
        if (sum >= sampling_.top_p * all) {
          least = std::max(least, logit);
          break;
        }
      }
    }
    if (sampling_.min_p > 0) {
      const double by = logits_[best_] + std::log(sampling_.min_p) / sharpness_;
      least = std::max(least, static_cast<float>(by));
    }
    return std::min(least, logits_[best_]);
  }

  std::span<const float> logits_;
  const Sampling& sampling_;
  double sharpness_;
  std::size_t best_ = 0;
  double total_ = 0;
};

}  // namespace

void sample(const Tensor& logits, const Sampling& sampling, const Draw& draw) {
  if (on_gpu::can_sample(logits)) return on_gpu::sample(logits, sampling, draw);
  if (logits.is_cuda()) {
    const Draw host{draw.seeds.cpu(), draw.counters.cpu(), draw.tokens.cpu(), draw.log_probs.cpu()};
    sample(logits.cpu(), sampling, host);
    draw.tokens.copy_(host.tokens);
    draw.log_probs.copy_(host.log_probs);
    return;
  }
  const auto rows = logits.to(at::kFloat).contiguous();
  const auto width = static_cast<std::size_t>(rows.size(1));
  const auto* values = rows.const_data_ptr<float>();
  const auto* seeds = draw.seeds.const_data_ptr<std::int64_t>();
  const auto* counters = draw.counters.const_data_ptr<std::int32_t>();
  auto* tokens = draw.tokens.data_ptr<std::int32_t>();
  auto* log_probs = draw.log_probs.data_ptr<float>();
  at::parallel_for(0, rows.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> scratch;
    for (auto i = begin; i < end; ++i) {
      Row row(std::span(values + static_cast<std::size_t>(i) * width, width), sampling);
      if (!row.read()) {
        tokens[i] = -1;
        log_probs[i] = std::numeric_limits<float>::quiet_NaN();
        continue;
      }
      const auto token = row.draw(static_cast<std::uint64_t>(seeds[i]),
                                  static_cast<std::uint32_t>(counters[i]), scratch);
      tokens[i] = static_cast<std::int32_t>(token);
      log_probs[i] = row.log_prob(token);
    }
  });
}

}  // namespace mgpu::ops
