#include "runtime/config/keys/optimizer_names.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "rendezvous/base/spelling.hpp"
#include "runtime/config/keys/key_fields.hpp"
#include "runtime/config/reading/yaml_values.hpp"

namespace mgpu::train {
namespace {

using rendezvous::shown;

constexpr const char* kAdamW = "adamw_torch_fused";
constexpr const char* kAdamW8 = "adamw_8bit";

struct Optimizer {
  const char* name;
  const char* ours;
  bool paged = false;
  const char* note = nullptr;
};

constexpr Optimizer kOptimizers[] = {
    {"adamw_torch_fused", kAdamW},
    {"adamw_torch", kAdamW},
    {"adamw_hf", kAdamW},
    {"adamw_apex_fused", kAdamW},
    {"adamw_anyprecision", kAdamW},
    {"adamw", kAdamW},
    {"adamw_fused", kAdamW},
    {"paged_adamw", kAdamW, true},
    {"paged_adamw_32bit", kAdamW, true},
    {"adamw_8bit", kAdamW8},
    {"adamw_bnb_8bit", kAdamW8},
    {"adamw_torch_8bit", kAdamW8},
    {"paged_adamw_8bit", kAdamW8, true},
    {"adamw_torch_4bit", kAdamW8, false, "runs as adamw_8bit: the moments have 8 bits, not 4"},
};

// The parameters of each schedule.
const std::map<std::string, std::vector<std::string>>& schedules() {
  static const std::map<std::string, std::vector<std::string>> all{
      {"linear", {}},
      {"constant", {}},
      {"constant_with_warmup", {}},
      {"cosine", {"num_cycles"}},
      {"cosine_with_restarts", {"num_cycles"}},
      {"polynomial", {"lr_end", "power"}},
      {"inverse_sqrt", {"timescale"}},
      {"cosine_with_min_lr", {"min_lr", "min_lr_rate", "num_cycles"}},
      {"cosine_warmup_with_min_lr", {"min_lr", "min_lr_rate", "num_cycles", "warmup_lr_rate"}},
      {"warmup_stable_decay",
       {"min_lr_ratio", "num_cycles", "num_decay_steps", "num_stable_steps"}},
  };
  return all;
}

// Parameters of warmup_stable_decay at transformers' defaults, which are the only supported values.
bool is_default_shape(const std::string& name, const YamlNode& value) {
  return (name == "warmup_type" && value.text == "linear") ||
         (name == "decay_type" && value.text == "cosine");
}

}  // namespace

void set_optimizer(TrainConfig& config, const YamlNode& value) {
  auto name = to_text(value);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return c == '-' ? '_' : static_cast<char>(std::tolower(c));
  });
  if (name.starts_with("torch.optim.")) name.erase(0, sizeof "torch.optim." - 1);
  for (const auto& known : kOptimizers) {
    if (name != known.name) continue;
    config.optim = known.ours;
    if (known.note) config.notes.emplace_back(known.note);
    if (known.paged)
      config.notes.push_back(
          fmt::format("runs as {}: the optimizer state stays on the GPU", known.ours));
    return;
  }
  throw std::runtime_error(fmt::format("{} is not supported; use {} (exact) or {} (8-bit moments)",
                                       shown(value.text, 48), kAdamW, kAdamW8));
}

void set_betas(TrainConfig& config, const YamlNode& value) {
  const auto words = to_words(value);
  if (words.size() != 2) throw std::runtime_error("need two numbers, such as [0.9, 0.999]");
  double betas[2];
  for (int i = 0; i < 2; ++i) {
    betas[i] = to_number({.kind = YamlNode::Kind::scalar, .text = words[i]});
    Range{.least = 0, .most = 1, .below = true}.check(betas[i]);
  }
  config.adam_beta1 = betas[0];
  config.adam_beta2 = betas[1];
}

std::vector<std::string> scheduler_names() {
  std::vector<std::string> names;
  for (const auto& [name, numbers] : schedules()) names.push_back(name);
  return names;
}

void set_scheduler(TrainConfig& config, const YamlNode& value) {
  const auto name = to_text(value);
  if (!schedules().count(name))
    throw std::runtime_error(
        fmt::format("need one of {}, not {}", fmt::join(scheduler_names(), ", "), shown(name, 48)));
  config.lr_scheduler_type = name;
}

void set_scheduler_numbers(TrainConfig& config, const YamlNode& value) {
  if (!value.is_map()) throw std::runtime_error("need a map, such as {min_lr_rate: 0.1}");
  const auto& known = schedules().at(config.lr_scheduler_type);
  for (std::size_t i = 0; i + 1 < value.items.size(); i += 2) {
    const auto& name = value.items[i].text;
    const auto& number = value.items[i + 1];
    if (is_null(number) || is_default_shape(name, number)) continue;
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw std::runtime_error(
          fmt::format("{} has {}, not {}", config.lr_scheduler_type,
                      known.empty() ? "no parameters"
                                    : fmt::format("the parameters {}", fmt::join(known, ", ")),
                      shown(name, 48)));
    try {
      config.lr_scheduler_kwargs[name] = to_number(number);
      at_least(0).check(config.lr_scheduler_kwargs[name]);
    } catch (const std::runtime_error& e) {
      throw std::runtime_error(fmt::format("{}: {}", name, e.what()));
    }
  }
}

}  // namespace mgpu::train
