#include "runtime/train/adapter.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "rendezvous/base/contained_file.hpp"
#include "rendezvous/base/input_error.hpp"
#include "runtime/checkpoint/file.hpp"
#include "runtime/checkpoint/hub_cache.hpp"
#include "runtime/model/model_shape.hpp"
#include "runtime/train/weights_io.hpp"

namespace mgpu::train {
namespace {

using Part = checkpoint::AdapterKey::Part;

constexpr std::pair<const char*, Part> kEndings[] = {{model::kLoraA, Part::lora_a},
                                                     {model::kLoraB, Part::lora_b},
                                                     {model::kMagnitude, Part::magnitude}};

std::string kind_of(const checkpoint::LoraConfig& lora) {
  return fmt::format("{}{}", lora.use_rslora ? ", rsLoRA" : "", lora.use_dora ? ", DoRA" : "");
}

std::string last_part(const std::string& module) {
  return module.substr(module.rfind('.') + 1);
}

// Calls visit(name of the tensor in the model, its value) for every tensor of the adapter.
template <class Visit>
void for_each_tensor(const AdapterSource& adapter, const model::ModelConfig& model,
                     const Visit& visit) {
  const checkpoint::Weights files(adapter.folder, "adapter_model");
  checkpoint::check_adapter(files, adapter.lora, model::tensor_plan(model));
  for (const auto& name : files.names()) {
    const auto key = checkpoint::parse_adapter_key(name);
    std::string ours = key.name;
    for (const auto& [ending, part] : kEndings)
      if (part == key.part) ours += ending;
    visit(ours, tensor_over(files.get(name)));
  }
}

}  // namespace

AdapterSource open_adapter(const std::string& adapter) {
  AdapterSource source{checkpoint::resolve_model(adapter), {}};
  const auto file = (std::filesystem::path(source.folder) / "adapter_config.json").string();
  source.lora = checkpoint::parse_lora_config(
      rendezvous::read_contained_file(source.folder, "adapter_config.json", 1 << 20), file);
  return source;
}

AdapterShape shape_of(const AdapterSource& adapter, const model::ModelConfig& model) {
  AdapterShape shape;
  const auto plan = model::tensor_plan(model);
  for (const auto& target : checkpoint::lora_targets(adapter.lora, plan)) {
    const bool first = shape.layers.targets.empty();
    if (!first && (target.rank != shape.layers.rank || target.scale != shape.scale)) {
      throw rendezvous::InputError(fmt::format(
          "{}: adapters whose layers differ in rank or scale are not supported", adapter.folder));
    }
    shape.layers.rank = target.rank;
    shape.scale = target.scale;
    shape.layers.targets.insert(last_part(target.module));
  }
  shape.layers.dora = adapter.lora.use_dora;
  for (const auto& saved : checkpoint::saved_parameters(adapter.lora, plan))
    shape.layers.whole.insert(last_part(saved.name.substr(0, saved.name.rfind('.'))));
  return shape;
}

void load_adapter(parallel::Shards& shards, const AdapterSource& adapter,
                  const model::ModelConfig& model) {
  for_each_tensor(adapter, model, [&](const std::string& name, const at::Tensor& value) {
    shards.set(name, value);
  });
}

void load_master_weights(optim::Optimizer& optimizer, const AdapterSource& adapter,
                         const model::ModelConfig& model) {
  for_each_tensor(adapter, model, [&](const std::string& name, const at::Tensor& value) {
    for (const auto& state : optimizer.states()) {
      const auto& own = state.owned->fragment;
      if (own.name != name) continue;
      state.at("master").values.copy_(value.reshape({-1}).narrow(0, own.tensor_begin, own.size));
    }
  });
  optimizer.use_loaded_state();
}

std::vector<std::string> adopt_adapter_settings(const AdapterSource& adapter,
                                                const model::ModelConfig& model,
                                                TrainConfig& config) {
  const auto shape = shape_of(adapter, model);
  std::vector<std::string> notes{fmt::format(
      "continuing from adapter {}: rank {}, alpha {}{}, on {}", adapter.folder, shape.layers.rank,
      adapter.lora.alpha, kind_of(adapter.lora), fmt::join(shape.layers.targets, ", "))};
  const auto take = [&notes](const char* key, auto& ours, auto theirs) {
    if (ours == theirs) return;
    notes.push_back(fmt::format("{}: using the adapter's {} instead of {}", key, theirs, ours));
    ours = theirs;
  };
  take("lora_r", config.lora_r, shape.layers.rank);
  take("use_rslora", config.use_rslora, adapter.lora.use_rslora);
  take("use_dora", config.use_dora, adapter.lora.use_dora);
  const auto rank = static_cast<double>(shape.layers.rank);
  take("lora_alpha", config.lora_alpha, shape.scale * (config.use_rslora ? std::sqrt(rank) : rank));
  config.lora_target_modules.assign(shape.layers.targets.begin(), shape.layers.targets.end());
  config.lora_modules_to_save.assign(shape.layers.whole.begin(), shape.layers.whole.end());
  return notes;
}

std::string adapter_name(const std::string& name) {
  for (const auto& [ending, part] : kEndings) {
    if (name.ends_with(ending))
      return checkpoint::adapter_key({part, name.substr(0, name.size() - std::strlen(ending))});
  }
  return checkpoint::adapter_key({Part::whole, name});
}

}  // namespace mgpu::train
