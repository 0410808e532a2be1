#include "runtime/config/check.hpp"

#include <stdexcept>

#include <fmt/format.h>

#include "rendezvous/base/spelling.hpp"
#include "rendezvous/base/text_table.hpp"
#include "runtime/config/keys/key_table.hpp"
#include "runtime/config/planning/batch_arithmetic.hpp"
#include "runtime/config/planning/generation_arithmetic.hpp"
#include "runtime/config/reading/yaml_read.hpp"
#include "runtime/config/reading/yaml_values.hpp"

namespace mgpu::train {
namespace {

constexpr std::size_t kWidestValue = 60;
constexpr std::int64_t kLargeBatch = 32;
constexpr double kHighRate = 1e-3;
constexpr double kLongWarmup = .2;
constexpr std::int64_t kMuchAccumulation = 8;
constexpr double kLowAdapterRate = 5e-5;

std::string value_table(const TrainConfig& config) {
  const TrainConfig defaults;
  std::vector<std::vector<std::string>> rows;
  for (const auto& key : config_keys()) {
    if (!key.field.show) continue;
    const auto value = key.field.show(config);
    if (value == key.field.show(defaults) && key.name != "task") continue;
    auto initial = default_text(key);
    if (!initial.empty()) initial = fmt::format("[{}]", initial);
    rows.push_back({"  " + key.name, rendezvous::shown(value, kWidestValue), initial});
  }
  for (const auto& [name, value] : config.grpo)
    rows.push_back({"  " + name, rendezvous::shown(value, kWidestValue),
                    fmt::format("[{}]", default_text(*find_key(name)))});
  for (auto& row : rows)
    if (row.back() == "[]") row.back().clear();
  return rendezvous::text_table(rows);
}

std::string lines(const char* title, const std::vector<std::string>& all) {
  if (all.empty()) return {};
  auto text = fmt::format("\n{}:\n", title);
  for (const auto& line : all) text += fmt::format("  {}\n", line);
  return text;
}

std::string step_sentence(const TrainConfig& config, std::int64_t ranks) {
  if (config.task != Task::grpo) return batch_sentence(plan_batch(config, ranks), config.packing);
  const auto sizes = plan_generation(config, ranks);
  auto text = generation_sentence(sizes);
  for (const auto& note : sizes.notes) text += "\n" + note;
  return text;
}

double warmup_fraction(const TrainConfig& config) {
  if (config.warmup_steps < 1) return config.warmup_steps;
  return config.max_steps > 0 ? config.warmup_steps / static_cast<double>(config.max_steps) : 0;
}

}  // namespace

std::vector<std::string> warnings(const TrainConfig& config, std::int64_t ranks) {
  std::vector<std::string> all;
  const auto plan = micro_batches(config, ranks);
  if (config.task == Task::sft && plan.global() > kLargeBatch &&
      config.learning_rate <= TrainConfig{}.learning_rate)
    all.push_back(
        fmt::format("{} sequences per step at learning_rate {}: above {} sequences a higher "
                    "rate or more epochs may be needed",
                    plan.global(), config.learning_rate, kLargeBatch));
  // New models are small, and learn at higher rates.
  if (config.learning_rate > kHighRate && config.model_size.empty())
    all.push_back(fmt::format("learning_rate {} is above {}; check that it is intended",
                              config.learning_rate, kHighRate));
  if (warmup_fraction(config) > kLongWarmup)
    all.push_back(fmt::format(
        "the warm-up takes {:.0f} % of all steps; lower warmup_steps if that is not intended",
        100 * warmup_fraction(config)));
  if (plan.accumulation > kMuchAccumulation)
    all.push_back(
        fmt::format("{} accumulation steps: a larger per_device_train_batch_size is "
                    "faster if it fits, see mgpu-train plan",
                    plan.accumulation));
  if (config.use_peft && config.task == Task::sft && config.learning_rate < kLowAdapterRate)
    all.push_back(fmt::format("learning_rate {} is low for LoRA; usual are 1e-4 to 2e-4",
                              config.learning_rate));
  return all;
}

std::string check_text(const TrainConfig& config, const std::string& name, std::int64_t ranks) {
  check_ranks(config, ranks);
  return fmt::format("{}: values that differ from the default [in brackets]:\n\n{}\n{}\n", name,
                     value_table(config), step_sentence(config, ranks)) +
         lines("Notes", config.notes) + lines("Warnings", warnings(config, ranks));
}

std::string named_model(const std::string& path) {
  try {
    const auto top = read_yaml(path);
    for (std::size_t i = 0; top.is_map() && i + 1 < top.items.size(); i += 2)
      if (const auto* key = find_key(top.items[i].text); key && key->name == "model_name_or_path")
        return to_text(top.items[i + 1]);
  } catch (const std::runtime_error&) {
    return {};
  }
  return {};
}

}  // namespace mgpu::train
