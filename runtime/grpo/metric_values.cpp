#include <cmath>
#include <stdexcept>

#include "runtime/grpo/loss_metrics.hpp"

namespace mgpu::grpo {

std::map<std::string, double> metric_values(const LossSettings& settings,
                                            std::span<const double> sums,
                                            std::span<const double> maxima) {
  if (sums.size() != static_cast<std::size_t>(Sum::count) ||
      maxima.size() != static_cast<std::size_t>(Max::count))
    throw std::logic_error("metric_values: need one number of every kind");
  const auto sum = [&](Sum which) { return sums[static_cast<std::size_t>(which)]; };
  const auto largest = [&](Max which) { return maxima[static_cast<std::size_t>(which)]; };
  std::map<std::string, double> values{{"loss", sum(Sum::loss)}};
  const auto mean = [&](const char* name, Sum of, Sum over) {
    if (sum(over) > 0) values[name] = sum(of) / sum(over);
  };
  const auto extreme = [&](const char* name, double value) {
    if (!std::isinf(value)) values[name] = value;
  };

  using train::ImportanceLevel;
  const bool by_token = settings.level == ImportanceLevel::token;
  const Sum members = by_token ? Sum::tokens : Sum::sequences;
  if (settings.entropy_coef != 0) values["policy_loss"] = sum(Sum::policy_loss);
  if (settings.beta != 0) mean("kl", Sum::kl, Sum::tokens);
  mean("entropy", Sum::entropy, Sum::tokens);
  if (settings.top_entropy_quantile < 1)
    mean("entropy/kept", Sum::learning_entropy, Sum::learning_tokens);
  if (settings.clips()) {
    mean("clip_ratio/low_mean", Sum::clipped_low, members);
    mean("clip_ratio/high_mean", Sum::clipped_high, members);
    mean("clip_ratio/region_mean", Sum::clipped, members);
    extreme("clip_ratio/low_min", -largest(Max::negated_clipped_low));
    extreme("clip_ratio/high_max", largest(Max::clipped_high));
  }
  if (settings.type == train::LossType::cispo)
    mean("cispo_clip_ratio", Sum::cispo_clipped, members);
  if (settings.type == train::LossType::vespo) mean("vespo/phi_seq_mean", Sum::phi, Sum::sequences);
  mean("sampling/sampling_logp_difference/mean", Sum::sampler_difference, Sum::sampler_tokens);
  extreme("sampling/sampling_logp_difference/max", largest(Max::sampler_difference));
  mean("sampling/importance_sampling_ratio/mean", Sum::sampler_ratio, Sum::sampler_ratios);
  extreme("sampling/importance_sampling_ratio/min", -largest(Max::negated_sampler_ratio));
  extreme("sampling/importance_sampling_ratio/max", largest(Max::sampler_ratio));
  return values;
}

}  // namespace mgpu::grpo
