#include "runtime/config/templates.hpp"

#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "rendezvous/base/spelling.hpp"

namespace mgpu::train {
namespace {

constexpr std::string_view kData = R"(
# JSONL, one row per line: {"text"}, {"messages"}, {"prompt", "completion"}, ShareGPT or Alpaca.
dataset_name: data/train.jsonl
val_set_size: 0.05              # held out for evaluation; below 1: a fraction
)";

constexpr std::string_view kRun = R"(
eval_strategy: steps
eval_steps: 100
save_steps: 100
save_total_limit: 3
logging_steps: 10
report_to: tensorboard
seed: 42

# launch:                       # options of mgpu-run
#   nproc: 4
#   max-restarts: 3             # resumes from the newest checkpoint
)";

constexpr std::string_view kSft =
    R"(# Supervised fine-tuning of all weights: mgpu-run --nproc 4 FILE
task: sft
model_name_or_path: Qwen/Qwen2.5-0.5B-Instruct   # folder, or name of a model of the Hub
output_dir: output/sft
{data}max_length: 2048
packing: true                   # several rows per sequence; each attends only to itself

per_device_train_batch_size: 2  # sequences per micro-batch and rank
gradient_accumulation_steps: 4  # or global_batch_size: 32, at any number of ranks
num_train_epochs: 3

learning_rate: 2.0e-5
lr_scheduler_type: cosine
warmup_steps: 0.03              # below 1: a fraction of all steps
weight_decay: 0.0
max_grad_norm: 1.0

gradient_checkpointing: auto    # true saves memory; mgpu-train plan FILE shows how much
zero_stage: auto                # shards 1: optimizer, 2: also gradients, 3: also weights
{run})";

constexpr std::string_view kLora = R"(# LoRA adapter on a frozen model: mgpu-run --nproc 4 FILE
task: sft
model_name_or_path: Qwen/Qwen2.5-7B-Instruct     # folder, or name of a model of the Hub
output_dir: output/lora
{data}max_length: 2048
packing: true                   # several rows per sequence; each attends only to itself

use_peft: true
lora_r: 16
lora_alpha: 32
lora_dropout: 0.0
lora_target_modules: all-linear # or [q_proj, k_proj, v_proj, o_proj]
# load_in_4bit: true            # QLoRA: the frozen model in 4 bits

per_device_train_batch_size: 4
gradient_accumulation_steps: 2
num_train_epochs: 2

learning_rate: 1.0e-4
lr_scheduler_type: cosine
warmup_steps: 0.03
gradient_checkpointing: auto
{run})";

constexpr std::string_view kGrpo =
    R"(# Reinforcement learning with rewards (GRPO): mgpu-run --nproc 4 FILE
task: grpo
model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct   # folder, or name of a model of the Hub
output_dir: output/grpo

# JSONL, one row per line: {"prompt"} or {"problem"}, and {"solution"} for the rewards.
dataset_name: data/prompts.jsonl

reward_funcs: [accuracy, format]
reward_weights: [1.0, 0.5]
num_generations: 8              # completions per prompt, compared with each other
max_completion_length: 512
temperature: 1.0
beta: 0.0                       # weight of the KL divergence from the initial model

per_device_train_batch_size: 8
gradient_accumulation_steps: 2
num_train_epochs: 1

learning_rate: 1.0e-6
lr_scheduler_type: constant_with_warmup
warmup_steps: 10
gradient_checkpointing: true

save_steps: 100
save_total_limit: 3
logging_steps: 1
report_to: tensorboard
seed: 42
)";

constexpr std::string_view kDebug =
    R"(# A few steps of a tiny new model, to check the installation: mgpu-run --nproc 2 FILE
task: sft
model_size: tiny                # trained from scratch: nothing to download
output_dir: output/debug

dataset_name: data/train.jsonl
max_length: 128

per_device_train_batch_size: 2
max_steps: 20

learning_rate: 1.0e-3
logging_steps: 1
save_steps: 10
consistency_check_steps: 5      # compares the weights of the ranks, bit for bit
full_determinism: true
seed: 42
)";

std::string filled(std::string_view text) {
  std::string whole(text);
  for (const auto& [mark, part] : {std::pair("{data}", kData), std::pair("{run}", kRun)})
    if (const auto at = whole.find(mark); at != whole.npos)
      whole.replace(at, std::string_view(mark).size(), part);
  return whole;
}

}  // namespace

const std::vector<std::string>& template_kinds() {
  static const std::vector<std::string> kinds{"sft", "grpo", "lora", "debug"};
  return kinds;
}

std::string template_text(std::string_view kind) {
  if (kind == "sft") return filled(kSft);
  if (kind == "lora") return filled(kLora);
  if (kind == "grpo") return std::string(kGrpo);
  if (kind == "debug") return std::string(kDebug);
  throw std::runtime_error(fmt::format("unknown template {}; use one of {}",
                                       rendezvous::shown(kind, 32),
                                       fmt::join(template_kinds(), ", ")));
}

}  // namespace mgpu::train
