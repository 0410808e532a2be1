#include "runtime/grpo/loss_control.hpp"

namespace mgpu::grpo {

LossSettings LossControl::settings() const {
  auto settings = settings_;
  settings.beta = kl_.beta();
  settings.entropy_coef = entropy_.applied();
  return settings;
}

bool LossControl::only_advantages_matter() const {
  return !has_reference() && !entropy_.enabled() && settings_.top_entropy_quantile == 1 &&
         settings_.type != train::LossType::bnpo;
}

void LossControl::adapt(std::map<std::string, double>& metrics) {
  const auto applied_beta = kl_.beta();
  if (const auto kl = metrics.find("kl"); kl != metrics.end()) kl_.step(kl->second);
  // The coefficient is that of the tokens in the entropy term, which a quantile may restrict.
  for (const auto* name : {"entropy/kept", "entropy"})
    if (const auto entropy = metrics.find(name); entropy != metrics.end()) {
      entropy_.step(entropy->second);
      break;
    }
  if (applied_beta != 0) metrics["beta"] = applied_beta;
  if (entropy_.enabled()) metrics["entropy_coef"] = entropy_.coefficient();
}

void LossControl::restore(const State& state) {
  if (kl_.adaptive() && state.beta > 0) kl_.restore(state.beta);
  if (entropy_.adaptive()) entropy_.restore(state.entropy);
}

}  // namespace mgpu::grpo
