#include "runtime/grpo/loss.hpp"

#include <ATen/ops/abs.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/nanquantile.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "runtime/grpo/loss_terms.hpp"
#include "runtime/grpo/loss_tokens.hpp"
#include "runtime/grpo/metric_sums.hpp"

namespace mgpu::grpo {
namespace {

using train::ImportanceLevel;
using train::LossNormalization;
using train::LossType;
using train::SamplerCorrection;

void check(const LossInput& input, const LossSettings& settings) {
  const auto reject_if = [](bool bad, const char* what) {
    if (bad) throw std::logic_error(what);
  };
  reject_if(settings.beta != 0 && !input.ref_log_probs.defined(),
            "loss: beta needs the reference model's log-probs");
  reject_if((settings.entropy_coef != 0 || input.entropy_threshold.defined()) &&
                !input.entropies.defined(),
            "loss: the entropy term needs entropies");
  reject_if(input.sequence.numel() != input.log_probs.numel() ||
                input.weights.numel() != input.advantages.numel(),
            "loss: need one sequence number per token, and one advantage and weight per sequence");
  const bool by_sequence = settings.correction == SamplerCorrection::sequence_mask ||
                           settings.correction == SamplerCorrection::sequence_truncate;
  reject_if(settings.type == LossType::vespo && settings.correct_sampler && by_sequence &&
                input.sampler_log_probs.defined(),
            "loss: vespo supports sampler correction by token only");
}

// The factor of each token's loss in the step, [n].
Tensor token_scales(const Tokens& tokens, const LossSettings& settings, const Denominators& by) {
  const auto one_over = [&](double number) {
    return at::mul(tokens.weights(), 1 / std::max(number, 1.0));
  };
  const auto completions = static_cast<double>(by.completions);
  const bool window = settings.normalization == LossNormalization::window;
  switch (settings.type) {
    case LossType::grpo:
    case LossType::sapo:
      return one_over(completions).div_(tokens.spread(tokens.lengths()));
    case LossType::bnpo:
      return one_over(static_cast<double>(by.micro_batches))
          .div_(tokens.weights().sum().clamp_min(1));
    case LossType::dr_grpo:
      return one_over(completions * static_cast<double>(by.max_completion_length));
    case LossType::luspo:
      return one_over(completions);
    case LossType::dapo:
    case LossType::cispo:
    case LossType::vespo:
      break;
  }
  return one_over(window ? static_cast<double>(by.tokens) : by.trl_tokens());
}

// The factor of each token's entropy: for their mean over the window's tokens, or over each
// micro-batch's.
Tensor entropy_scales(const Tensor& learning, const LossSettings& settings,
                      const Denominators& by) {
  const double coefficient = -settings.entropy_coef;
  if (settings.normalization == LossNormalization::window) {
    const double share = std::min(settings.top_entropy_quantile, 1.0);
    return at::mul(learning, coefficient / std::max(share * static_cast<double>(by.tokens), 1.0));
  }
  const auto micro_batches = static_cast<double>(std::max<std::int64_t>(by.micro_batches, 1));
  return at::mul(learning, coefficient / micro_batches).div_(learning.sum().clamp_min(1));
}

// Measures the difference between the sampler's log-probs and those of the policy that sampled.
// Returns the correction ratio, [n].
Tensor correct_sampler(const Tokens& tokens, const Tensor& old_log_probs,
                       const Tensor& sampler_log_probs, const LossSettings& settings,
                       MetricSums& sums) {
  const Tensor raw_difference = at::sub(old_log_probs, tokens.masked(sampler_log_probs));
  const Tensor unknown = raw_difference.isnan();
  const Tensor difference = raw_difference.masked_fill(unknown, 0);
  const Tensor known = tokens.mask().logical_and(unknown.logical_not()).to(at::kDouble);
  const Tensor distance = difference.abs();
  sums.add(Sum::sampler_difference, distance);
  sums.add(Sum::sampler_tokens, known);
  sums.max(Max::sampler_difference, distance, known);

  const Correction correction = sampler_correction(tokens, difference, settings);
  const Tensor& has = correction.by_sequence ? tokens.present() : tokens.weights();
  sums.add(Sum::sampler_ratio, at::mul(correction.clipped, has));
  sums.add(Sum::sampler_ratios, has);
  sums.max(Max::sampler_ratio, correction.clipped, has);
  sums.max(Max::negated_sampler_ratio, correction.clipped.neg(), has);
  return correction.ratio;
}

// Scaling by 0 yields 0 even for an infinite ratio: masks exist to remove those.
void scale(Terms& terms, const Tensor& by) {
  const Tensor none = by.eq(0);
  for (Tensor* term : {&terms.value, &terms.by_log_prob, &terms.by_log_ratio})
    if (term->defined()) *term = at::mul(*term, by).masked_fill_(none, 0);
}

void add(Tensor& sum, const Tensor& more, double factor) {
  if (!more.defined()) return;
  sum = sum.defined() ? sum.add(more, factor) : at::mul(more, factor);
}

// The gradient of the terms' sum with respect to log_probs.
Tensor gradient(const Tokens& tokens, const Terms& terms, ImportanceLevel level) {
  Tensor sum = at::zeros_like(tokens.log_probs());
  if (terms.by_log_prob.defined()) sum.add_(terms.by_log_prob);
  if (!terms.by_log_ratio.defined()) return sum;
  if (level == ImportanceLevel::token) return sum.add_(terms.by_log_ratio);
  // d(sequence log-ratio) / d(token log-prob) is 1 / length.
  return sum.add_(tokens.spread(tokens.means(terms.by_log_ratio)).mul_(tokens.weights()));
}

// Measures the entropies and adds the entropy term to the loss.
void add_entropy(const Tokens& tokens, const LossInput& input, const Tensor& learning,
                 const LossSettings& settings, const Denominators& by, Loss& out,
                 MetricSums& sums) {
  const Tensor entropies = tokens.masked(input.entropies);
  sums.add(Sum::entropy, entropies);
  sums.add(Sum::learning_entropy, at::mul(entropies, learning));
  sums.add(Sum::learning_tokens, learning);
  if (settings.entropy_coef == 0) return;
  const Tensor scales = entropy_scales(learning, settings, by);
  out.value = out.value.add(at::mul(entropies, scales).sum());
  out.entropy_gradient = scales.to(input.entropies.scalar_type());
}

Loss loss_without_tokens(const LossInput& input, const LossSettings& settings) {
  const auto options = input.log_probs.options().dtype(at::kDouble);
  Loss out{.value = at::zeros({}, options),
           .log_prob_gradient = at::zeros_like(input.log_probs),
           .entropy_gradient = {},
           .metrics = MetricSums(options).metrics()};
  if (settings.entropy_coef != 0) out.entropy_gradient = at::zeros_like(input.entropies);
  return out;
}

}  // namespace

Loss loss(const LossInput& input, const LossSettings& settings, const Denominators& denominators) {
  check(input, settings);
  if (input.log_probs.numel() == 0) return loss_without_tokens(input, settings);
  const Tokens tokens(input);
  MetricSums sums(tokens.weights().options());
  sums.add(Sum::tokens, tokens.weights());
  sums.add(Sum::sequences, tokens.present());

  const bool has_sampler = input.sampler_log_probs.defined();
  const Tensor old =
      input.old_log_probs.defined() ? tokens.masked(input.old_log_probs) : tokens.log_probs();
  Tensor correction;
  if (has_sampler) {
    correction = correct_sampler(tokens, old, input.sampler_log_probs, settings, sums);
    if (!settings.correct_sampler) correction = Tensor();
  }
  const Ratios at_now = ratios(tokens, old, settings);
  Terms terms = policy_terms(tokens, at_now, correction, settings, sums);

  Tensor learning = tokens.weights();  // tokens that the masks keep
  if (input.entropy_threshold.defined())
    learning = at::mul(learning, input.entropies.ge(input.entropy_threshold));
  Tensor kept = learning;
  if (settings.off_policy_threshold) {
    const Tensor sampler = has_sampler ? tokens.masked(input.sampler_log_probs) : old;
    kept = at::mul(kept, near_policy(tokens, sampler, *settings.off_policy_threshold));
  }
  if (correction.defined() && settings.type != LossType::vespo) kept = at::mul(kept, correction);
  scale(terms, kept);

  if (settings.beta != 0) {
    const Terms kl = kl_terms(tokens, tokens.masked(input.ref_log_probs), at_now, settings);
    sums.add(Sum::kl, kl.value);
    add(terms.value, kl.value, settings.beta);
    add(terms.by_log_prob, kl.by_log_prob, settings.beta);
    add(terms.by_log_ratio, kl.by_log_ratio, settings.beta);
  }
  scale(terms, token_scales(tokens, settings, denominators));
  Loss out;
  out.value = terms.value.sum();
  sums.add(Sum::policy_loss, terms.value);
  out.log_prob_gradient = gradient(tokens, terms, settings.level).to(input.log_probs.scalar_type());

  if (input.entropies.defined())
    add_entropy(tokens, input, learning, settings, denominators, out, sums);
  sums.add(Sum::loss, out.value);
  out.metrics = sums.metrics();
  return out;
}

bool gradient_needs_scores(const LossInput& input, const LossSettings& settings) {
  return input.old_log_probs.defined() || input.entropy_threshold.defined() || settings.beta != 0 ||
         settings.off_policy_threshold ||
         (settings.correct_sampler && input.sampler_log_probs.defined());
}

Tensor entropies_to_share(const LossInput& input) {
  const Tensor counts = input.weights.index_select(0, input.sequence).gt(0);
  return input.entropies.masked_fill(counts.logical_not(),
                                     std::numeric_limits<double>::quiet_NaN());
}

Tensor entropy_threshold(const Tensor& entropies, double top_entropy_quantile) {
  if (entropies.numel() == 0)
    return at::full_like(entropies.sum(), std::numeric_limits<double>::quiet_NaN());
  return at::nanquantile(entropies, 1 - top_entropy_quantile);
}

}  // namespace mgpu::grpo
