#include "runtime/grpo/loss_terms.hpp"

#include <ATen/ops/clamp.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/log.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <tuple>

namespace mgpu::grpo {
namespace {

using train::ImportanceLevel;
using train::LossType;
using train::SamplerCorrection;

const double kMinLog = std::log(1e-8);
constexpr double kMaxLog = 20;
constexpr double kMinLambda = 1e-4;

std::optional<at::Scalar> scalar(const std::optional<double>& number) {
  return number ? std::optional<at::Scalar>(*number) : std::nullopt;
}

// In fp64, unlike at::where of two numbers.
Tensor choose(const Tensor& condition, double yes, double no) {
  const Tensor all = at::full_like(condition, yes, condition.options().dtype(at::kDouble));
  return all.masked_fill(condition.logical_not(), no);
}

// -min(ratio A, clipped ratio A); where both are equal the gradient is the mean of both slopes.
Terms clipped_terms(const Tokens& tokens, const Tensor& full, const LossSettings& settings,
                    MetricSums& sums) {
  const auto& advantage = tokens.advantages();
  const double low = 1 - settings.epsilon, high = 1 + settings.upper_clip();
  const Tensor ratio = settings.delta ? full.clamp_max(*settings.delta) : full;
  const Tensor one = at::mul(ratio, advantage);
  const Tensor two = full.clamp(low, high).mul_(advantage);

  const Tensor slope = at::mul(full, advantage);
  // An infinite ratio has slope 0 where it is clipped.
  const auto inside = [&](const Tensor& is) { return slope.masked_fill(is.logical_not(), 0); };
  const Tensor slope_one = settings.delta ? inside(full.le(*settings.delta)) : slope;
  const Tensor slope_two = inside(full.ge(low).logical_and_(full.le(high)));
  const Tensor both = slope_one.add(slope_two).mul_(.5);
  const Tensor by_ratio =
      at::where(one.lt(two), slope_one, at::where(two.lt(one), slope_two, both)).neg();

  const Tensor clipped_low = ratio.lt(low).logical_and_(advantage.lt(0)).to(at::kDouble);
  const Tensor clipped_high = ratio.gt(high).logical_and_(advantage.gt(0)).to(at::kDouble);
  const auto by_level = [&](Sum sum, const Tensor& x) {
    sums.add(sum, settings.level == ImportanceLevel::token ? x : tokens.means(x));
  };
  by_level(Sum::clipped_low, clipped_low);
  by_level(Sum::clipped_high, clipped_high);
  by_level(Sum::clipped, clipped_low.add(clipped_high));  // never both
  sums.max(Max::negated_clipped_low, tokens.means(clipped_low).neg_(), tokens.present());
  sums.max(Max::clipped_high, tokens.means(clipped_high), tokens.present());
  return {at::minimum(one, two).neg_(), {}, by_ratio};
}

// -log_prob A, weighted by a clipped ratio that has no gradient itself.
Terms cispo_terms(const Tokens& tokens, const Tensor& ratio, const LossSettings& settings,
                  MetricSums& sums) {
  const auto& advantage = tokens.advantages();
  const double bound = settings.upper_clip();
  const Tensor slope = ratio.clamp_max(bound).mul_(advantage).neg_();
  const Tensor clipped = ratio.gt(bound).logical_and_(advantage.gt(0)).to(at::kDouble);
  const bool by_token = settings.level == ImportanceLevel::token;
  sums.add(Sum::cispo_clipped, by_token ? clipped : tokens.means(clipped));
  return {at::mul(slope, tokens.log_probs()), slope, {}};
}

// A soft gate instead of clipping: -A sigmoid(t (ratio - 1)) 4 / t.
Terms sapo_terms(const Tokens& tokens, const Tensor& ratio, const LossSettings& settings) {
  const auto& advantage = tokens.advantages();
  const Tensor t = choose(advantage.gt(0), settings.sapo_positive, settings.sapo_negative);
  const Tensor gate = at::sigmoid(at::mul(t, ratio.sub(1)));
  const Tensor four = at::mul(advantage, -4);
  const Tensor slope = at::mul(gate, gate.neg().add_(1)).mul_(ratio).mul_(four);
  return {at::mul(gate, four).div_(t), {}, slope};
}

// The weight of each sequence: phi(w) = exp(lambda + k log w - lambda w) for its sequence ratio w.
Tensor vespo_weights(const Tokens& tokens, const Ratios& ratios, const Tensor& correction,
                     const LossSettings& settings) {
  Tensor log_w = tokens.sums(ratios.log_ratio.clamp(-kMaxLog, kMaxLog));
  if (correction.defined())
    log_w.add_(tokens.sums(tokens.masked(correction.log().clamp_(kMinLog, kMaxLog))));
  log_w = log_w.clamp(kMinLog, kMaxLog);
  const Tensor good = tokens.means(tokens.advantages()).ge(0);
  const Tensor k = choose(good, settings.vespo_k_positive, settings.vespo_k_negative);
  const Tensor lambda = choose(good, std::max(settings.vespo_lambda_positive, kMinLambda),
                               std::max(settings.vespo_lambda_negative, kMinLambda));
  const Tensor phi = at::mul(k, log_w).add_(at::mul(lambda, log_w.exp().neg_().add_(1))).exp_();
  return phi.masked_fill(phi.isfinite().logical_not(), 0);
}

Terms vespo_terms(const Tokens& tokens, const Ratios& ratios, const Tensor& correction,
                  const LossSettings& settings, MetricSums& sums) {
  const Tensor phi = vespo_weights(tokens, ratios, correction, settings);
  sums.add(Sum::phi, at::mul(phi, tokens.present()));
  const Tensor slope = at::mul(tokens.spread(phi), tokens.advantages()).neg_();
  return {at::mul(slope, tokens.log_probs()), slope, {}};
}

}  // namespace

Ratios ratios(const Tokens& tokens, const Tensor& old_log_probs, const LossSettings& settings) {
  const Tensor log_ratio = at::sub(tokens.log_probs(), old_log_probs);
  if (settings.level == ImportanceLevel::token) return {log_ratio, log_ratio.exp()};
  return {log_ratio, tokens.spread(tokens.means(log_ratio).exp_())};
}

Correction sampler_correction(const Tokens& tokens, const Tensor& difference,
                              const LossSettings& settings) {
  using enum SamplerCorrection;
  const auto mode = settings.correction;
  const bool by_sequence = mode == sequence_truncate || mode == sequence_mask;
  Tensor ratio = by_sequence ? tokens.sums(difference).exp_() : difference.exp();
  const auto& [max, min] = std::tie(settings.sampler_clip_max, settings.sampler_clip_min);
  if (mode == token_truncate || mode == sequence_truncate) {
    if (max || min) ratio = ratio.clamp(scalar(min), scalar(max));
  } else {
    const Tensor all = ratio;
    if (max) ratio = ratio.masked_fill(all.gt(*max), 0);
    if (min) ratio = ratio.masked_fill(all.lt(*min), 0);
  }
  return {by_sequence ? tokens.spread(ratio) : ratio, ratio, by_sequence};
}

Tensor near_policy(const Tokens& tokens, const Tensor& sampler_log_probs, double threshold) {
  const Tensor difference = at::sub(sampler_log_probs, tokens.log_probs());
  const Tensor known = difference.masked_fill(difference.isnan(), 0);
  const Tensor near = tokens.spread(tokens.means(known)).le(threshold);
  return near.logical_or_(tokens.advantages().ge(0)).to(at::kDouble);
}

Terms kl_terms(const Tokens& tokens, const Tensor& ref_log_probs, const Ratios& ratios,
               const LossSettings& settings) {
  const Tensor difference = at::sub(ref_log_probs, tokens.log_probs());
  const Tensor k3 = difference.expm1().sub_(difference);
  const Tensor slope = difference.expm1().neg_();
  if (!settings.bias_corrected_kl) return {k3, slope, {}};
  const Tensor corrected = at::mul(k3, ratios.ratio);
  return {corrected, at::mul(slope, ratios.ratio), corrected};
}

Terms policy_terms(const Tokens& tokens, const Ratios& ratios, const Tensor& correction,
                   const LossSettings& settings, MetricSums& sums) {
  switch (settings.type) {
    case LossType::cispo:
      return cispo_terms(tokens, ratios.ratio, settings, sums);
    case LossType::sapo:
      return sapo_terms(tokens, ratios.ratio, settings);
    case LossType::vespo:
      return vespo_terms(tokens, ratios, correction, settings, sums);
    case LossType::grpo:
    case LossType::bnpo:
    case LossType::dr_grpo:
    case LossType::dapo:
    case LossType::luspo:
      break;
  }
  return clipped_terms(tokens, ratios.ratio, settings, sums);
}

}  // namespace mgpu::grpo
