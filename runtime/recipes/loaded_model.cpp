#include "runtime/recipes/loaded_model.hpp"

#include <filesystem>
#include <stdexcept>

#include "runtime/checkpoint/file.hpp"
#include "runtime/checkpoint/hub.hpp"
#include "runtime/checkpoint/peft.hpp"
#include "runtime/model/model_shape.hpp"
#include "runtime/train/weights_io.hpp"

namespace mgpu::recipes {
namespace {

namespace fs = std::filesystem;

checkpoint::LoraConfig read_adapter_config(const std::string& folder) {
  const auto file = (fs::path(folder) / "adapter_config.json").string();
  return checkpoint::parse_lora_config(checkpoint::read_file(file, 1 << 20), file);
}

// The adapter's layers, which must be of one rank and scale here.
model::LoraShape shape_of(const checkpoint::LoraConfig& lora,
                          const std::vector<checkpoint::TensorShape>& plan, double& scale) {
  model::LoraShape shape;
  for (const auto& target : checkpoint::lora_targets(lora, plan)) {
    const bool first = shape.targets.empty();
    if (!first && (target.rank != shape.rank || target.scale != scale)) {
      throw std::runtime_error("adapters whose layers differ in rank or scale are not supported");
    }
    shape.rank = target.rank;
    scale = target.scale;
    shape.targets.insert(target.module.substr(target.module.rfind('.') + 1));
  }
  for (const auto& saved : checkpoint::saved_parameters(lora, plan)) {
    const auto stem = saved.name.substr(0, saved.name.rfind('.'));
    shape.whole.insert(stem.substr(stem.rfind('.') + 1));
  }
  return shape;
}

void load_adapter(parallel::Shards& shards, const std::string& folder,
                  const checkpoint::LoraConfig& lora,
                  const std::vector<checkpoint::TensorShape>& plan) {
  const checkpoint::Weights files(folder, "adapter_model");
  checkpoint::check_adapter(files, lora, plan);
  for (const auto& name : files.names()) {
    using Part = checkpoint::AdapterKey::Part;
    const auto key = checkpoint::parse_adapter_key(name);
    const auto* ending = key.part == Part::lora_a   ? ".lora_A.weight"
                         : key.part == Part::lora_b ? ".lora_B.weight"
                                                    : "";
    shards.set(key.name + ending, train::tensor_over(files.get(name)));
  }
}

}  // namespace

LoadedModel load_model(std::string model, const std::string& adapter, at::Device device,
                       at::ScalarType dtype) {
  std::string adapter_folder;
  checkpoint::LoraConfig lora;
  if (!adapter.empty()) {
    adapter_folder = checkpoint::resolve_model(adapter);
    lora = read_adapter_config(adapter_folder);
    if (model.empty()) model = lora.base_model;
  }
  if (model.empty()) throw std::runtime_error("which model? give --model or --adapter");
  train::TrainConfig config;
  config.model_name_or_path = model;
  LoadedModel loaded{.source = train::open_model(config), .comm = comm::join({}, {})};
  const auto plan = model::tensor_plan(loaded.source.config);
  model::LoraShape shape;
  if (!adapter.empty()) shape = shape_of(lora, plan, loaded.adapter_scale);
  parallel::ShardOptions options;
  options.device = device;
  options.dtype = dtype;
  options.trains = false;
  loaded.shards = std::make_unique<parallel::Shards>(
      loaded.source.config, model::lay_out(loaded.source.config, shape), options, *loaded.comm);
  train::load_weights(*loaded.shards, *loaded.source.weights, loaded.source.config,
                      loaded.source.vocab_on_disk);
  if (!adapter.empty()) load_adapter(*loaded.shards, adapter_folder, lora, plan);
  return loaded;
}

}  // namespace mgpu::recipes
