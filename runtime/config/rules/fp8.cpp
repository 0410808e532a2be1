// What is computed in 8-bit floating point, and what it cannot be combined with.

#include "runtime/config/rules/rules.hpp"

namespace mgpu::train {
namespace {

// Why these settings contradict each other; null if they do not.
const char* fp8_mistake(const TrainConfig& config) {
  if (config.task == Task::grpo)
    return "is not supported by GRPO, whose completions are generated in bf16; leave it out";
  if (config.load_in_4bit) return "contradicts 4-bit weights (load_in_4bit or qlora); keep one";
  if (config.load_in_8bit) return "contradicts load_in_8bit; keep one";
  if (config.dtype == Dtype::fp16)
    return "requires bf16: gradients in fp8 are not combined with the loss scale of fp16";
  if (config.fp8 == Fp8::base && !config.use_peft)
    return "base keeps frozen weights in 8 bits, and LoRA is off; add lora_r, or set fp8: mlp";
  if (config.fp8 == Fp8::mlp && config.use_peft)
    return "mlp is for full training, and LoRA is on; set fp8: base";
  if (config.use_dora)
    return "cannot be combined with use_dora, which needs the weights in 16 bits; keep one";
  return nullptr;
}

}  // namespace

void fp8_rules(Reading& reading) {
  auto& config = reading.config;
  if (config.fp8 == Fp8::none) return;
  const auto* setting = reading.find("fp8");
  if (config.fp8 == Fp8::automatic) {
    config.fp8 = config.use_peft ? Fp8::base : Fp8::mlp;
    reading.note(*setting, config.use_peft
                               ? "means fp8: base, the products with the frozen weights"
                               : "means fp8: mlp, the products with the weights of the MLP");
  }
  if (const char* mistake = fp8_mistake(config)) return reading.error(*setting, mistake);
  if (config.dtype == Dtype::fp32)
    reading.note(*setting,
                 "multiplies in fp32 on GPUs because dtype is fp32; bf16 is the usual "
                 "choice");
}

}  // namespace mgpu::train
