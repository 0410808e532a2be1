#include "runtime/config/optimizer_choice.hpp"

namespace mgpu::train {

optim::Moments moments_of(const TrainConfig& config) {
  if (config.optim == "adamw_8bit") return optim::Moments::eight_bit;
  return config.optim_dtype == "bf16" ? optim::Moments::bf16 : optim::Moments::fp32;
}

std::vector<optim::StateTensor> optimizer_state(const TrainConfig& config) {
  return optim::adamw_state(moments_of(config));
}

}  // namespace mgpu::train
