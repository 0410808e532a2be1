#include "runtime/config/planning/memory_advice.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/config/grpo_values.hpp"

namespace mgpu::train {
namespace {

// Messages of LibTorch, CUDA and cuBLAS; mgpu-run detects the first four as well.
constexpr std::array<std::string_view, 7> kSigns = {"CUDA out of memory",
                                                    "CUDA error: out of memory",
                                                    "cudaErrorMemoryAllocation",
                                                    "CUBLAS_STATUS_ALLOC_FAILED",
                                                    "CUDNN_STATUS_ALLOC_FAILED",
                                                    "CUDA driver error: out of memory",
                                                    "DefaultCPUAllocator: can't allocate memory"};

constexpr std::int64_t kShortest = 512;  // max_length that is not worth halving

// The message from the sign on, without the allocator's further lines.
std::string in_short(const std::string& error, std::size_t sign) {
  auto text = error.substr(sign, error.find('\n', sign) - sign);
  for (const std::string_view end : {" Including non-PyTorch", " If reserved but", " See doc"})
    text = text.substr(0, text.find(end));
  while (text.ends_with('.') || text.ends_with(' ')) text.pop_back();
  return text;
}

const char* name_of(Recompute way) {
  switch (way) {
    case Recompute::no:
      return "false";
    case Recompute::full:
      return "true";
    case Recompute::automatic:
      return "auto";
    case Recompute::offload:
      return "offload";
  }
  return "";
}

std::int64_t completion_length(const TrainConfig& config) {
  return GrpoValues(config).whole("max_completion_length").value_or(512);
}

// What more recomputation would need less memory, if any.
std::string more_recomputation(const TrainConfig& config, const std::optional<PlanRequest>& plan) {
  const auto way = config.gradient_checkpointing;
  const bool partial =
      way != Recompute::no && way != Recompute::automatic && config.recomputed_layers > 0;
  const auto layers = plan ? layers_after_failure(*plan) : kAllLayers;
  if (partial && layers < 0) return "recomputed_layers: all";
  if (layers > 0 && (partial || way == Recompute::no || way == Recompute::automatic))
    return fmt::format("recomputed_layers: {}", layers);
  if (way == Recompute::offload) return "";
  return way == Recompute::full ? "gradient_checkpointing: offload"
                                : "gradient_checkpointing: true";
}

std::string recomputation_text(const TrainConfig& config) {
  const auto layers = config.recomputed_layers;
  const auto way = config.gradient_checkpointing;
  if (layers < 0 || way == Recompute::no || way == Recompute::automatic) return name_of(way);
  return fmt::format("{}, recomputed_layers {}", name_of(way), layers);
}

std::string settings_text(const TrainConfig& config, std::int64_t ranks) {
  const auto bits = bits_of_base(config);
  const auto what = bits > 0          ? fmt::format("adapters on {}-bit weights", bits)
                    : config.use_peft ? std::string("adapters")
                                      : std::string("all weights");
  const auto length =
      config.task == Task::grpo
          ? fmt::format("max_completion_length {} after each prompt", completion_length(config))
          : fmt::format("max_length {}", config.max_length);
  const auto budget = micro_batch_tokens(config);
  return fmt::format(
      "the run had {}, gradient_checkpointing {}, zero_stage {} on {} rank{}, training {}",
      budget > 0 ? fmt::format("micro_batch_tokens {}, {}", budget, length)
                 : fmt::format("per_device_train_batch_size {} x {}",
                               config.per_device_train_batch_size, length),
      recomputation_text(config),
      config.zero_stage == kAutomaticStage ? std::string("auto")
                                           : std::to_string(config.zero_stage),
      ranks, ranks == 1 ? "" : "s", what);
}

// Changes that lower the memory, the cheapest first.
std::vector<std::string> remedies(const TrainConfig& config, std::int64_t ranks,
                                  const std::optional<PlanRequest>& plan) {
  std::vector<std::string> all;
  if (const auto tokens = micro_batch_tokens(config); tokens > 0) {
    // A sequence is never divided, so a smaller budget than the longest one changes nothing.
    if (tokens > config.max_length)
      all.push_back(fmt::format("micro_batch_tokens: {}", std::max(config.max_length, tokens / 2)));
  } else if (const auto size = config.per_device_train_batch_size; size > 1) {
    all.push_back(fmt::format("per_device_train_batch_size: {}{}", size / 2,
                              config.global_batch_size > 0 || config.task == Task::grpo
                                  ? ""
                                  : fmt::format(" with gradient_accumulation_steps: {}",
                                                2 * config.gradient_accumulation_steps)));
  }
  if (plan && config.offload_embedding != true && can_offload_embedding(plan->model, config))
    all.push_back("offload_embedding: true");
  if (const auto more = more_recomputation(config, plan); !more.empty()) all.push_back(more);
  const int highest = config.gradient_aggregation == Aggregation::median ? 1 : 3;
  if (ranks > 1 && config.zero_stage < highest)
    all.push_back(fmt::format("zero_stage: {}", highest));
  if (config.task == Task::grpo) {
    if (const auto most = completion_length(config); most > 1)
      all.push_back(fmt::format("max_completion_length: {}", most / 2));
    if (const auto group = GrpoValues(config).whole("num_generations").value_or(8); group > 2)
      all.push_back(fmt::format("num_generations: {}", group / 2));
  } else if (config.max_length > kShortest) {
    all.push_back(fmt::format("max_length: {}", config.max_length / 2));
  }
  const auto* without = config.fp8 == Fp8::none ? "" : ", without fp8";  // which contradicts both
  if (!config.use_peft)
    all.push_back(fmt::format("use_peft: true{}", without));
  else if (!config.load_in_4bit)
    all.push_back(fmt::format("load_in_4bit: true{}", without));
  if (all.empty()) all.push_back("more GPUs or a smaller model");
  return all;
}

}  // namespace

bool reports_out_of_memory(std::string_view error) {
  return std::any_of(kSigns.begin(), kSigns.end(),
                     [&](std::string_view sign) { return error.find(sign) != error.npos; });
}

std::optional<std::string> out_of_memory_text(const std::string& error, const TrainConfig& config,
                                              std::int64_t ranks,
                                              const std::optional<PlanRequest>& plan) {
  for (const auto sign : kSigns) {
    const auto found = error.find(sign);
    if (found == error.npos) continue;
    return fmt::format("{}; {}; to use less memory, try {}; mgpu-train plan shows what fits",
                       in_short(error, found), settings_text(config, ranks),
                       fmt::join(remedies(config, ranks, plan), ", "));
  }
  return std::nullopt;
}

}  // namespace mgpu::train
