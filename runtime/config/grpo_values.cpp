#include "runtime/config/grpo_values.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "runtime/config/grpo_choices.hpp"
#include "runtime/config/keys/key_table.hpp"
#include "runtime/config/reading/yaml_values.hpp"

namespace mgpu::train {
namespace {

// The value converted by `to`; empty for a default that is only a text.
template <class To>
auto read(const GrpoValues& values, std::string_view key, To to)
    -> std::optional<decltype(to(YamlNode{}))> {
  const auto value = values.node(key);
  if (is_null(value)) return {};
  try {
    return to(value);
  } catch (const std::runtime_error& e) {
    if (!values.is_set(key)) return {};
    throw std::runtime_error(fmt::format("{}: {}", key, e.what()));
  }
}

}  // namespace

bool GrpoValues::is_set(std::string_view key) const {
  return config_.grpo.count(std::string(key)) > 0;
}

YamlNode GrpoValues::node(std::string_view key) const {
  const auto* spec = find_key(key);
  if (!spec || spec->name != key || spec->task != KeyTask::grpo)
    throw std::logic_error(fmt::format("{} is not a GRPO key", key));
  const auto found = config_.grpo.find(spec->name);
  return parse_yaml(found == config_.grpo.end() ? default_text(*spec) : found->second, spec->name);
}

bool GrpoValues::flag(std::string_view key) const {
  return read(*this, key, to_flag).value_or(false);
}

std::optional<double> GrpoValues::number(std::string_view key) const {
  return read(*this, key, to_number);
}

std::optional<std::int64_t> GrpoValues::whole(std::string_view key) const {
  return read(*this, key, to_whole);
}

std::string GrpoValues::text(std::string_view key) const {
  return read(*this, key, to_text).value_or(std::string());
}

bool GrpoValues::uses_server() const {
  return flag("use_vllm") && choice("vllm_mode", vllm_modes()) == VllmMode::server;
}

bool may_divide_micro_batches(const TrainConfig& config) {
  if (config.task != Task::grpo) return true;
  const GrpoValues values(config);
  const bool entropy =
      values.flag("use_adaptive_entropy") || values.number("entropy_coef").value_or(0) != 0;
  const bool mean_of_entropies =
      entropy &&
      values.choice("loss_normalization", loss_normalizations()) != LossNormalization::window;
  return values.choice("loss_type", loss_types()) != LossType::bnpo && !mean_of_entropies &&
         values.number("top_entropy_quantile").value_or(1) >= 1;
}

std::int64_t micro_batch_tokens(const TrainConfig& config) {
  if (config.task != Task::grpo) return 0;
  const GrpoValues values(config);
  if (config.grpo.contains("use_dynamic_bsz") && !values.flag("use_dynamic_bsz")) return 0;
  return values.whole("micro_batch_tokens").value_or(0);
}

std::int64_t most_micro_batch_tokens(const TrainConfig& config) {
  return std::max(micro_batch_tokens(config), config.max_length);
}

}  // namespace mgpu::train
