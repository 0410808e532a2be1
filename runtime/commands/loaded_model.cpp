#include "runtime/commands/loaded_model.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <stdexcept>
#include <utility>

#include "runtime/checkpoint/file.hpp"
#include "runtime/commands/hub_names.hpp"
#include "runtime/config/command_line.hpp"
#include "runtime/model/write_config.hpp"
#include "runtime/train/adapter.hpp"
#include "runtime/train/weights_io.hpp"

namespace mgpu::recipes {

namespace fs = std::filesystem;

LoadedModel load_model(std::string model, const std::string& adapter, at::Device device,
                       at::ScalarType dtype) {
  std::optional<train::AdapterSource> adapter_source;
  if (!adapter.empty()) {
    adapter_source = train::open_adapter(downloaded_model(adapter, hub::Part::adapter));
    if (model.empty()) model = adapter_source->lora.base_model;
  }
  if (model.empty()) throw train::UsageError("no model given; use --model DIR");
  train::TrainConfig config;
  config.model_name_or_path = downloaded_model(model, hub::Part::model);
  LoadedModel loaded{.source = train::open_model(config), .comm = comm::join({}, {})};
  train::AdapterShape shape;
  if (adapter_source) {
    loaded.notes = train::adopt_adapter_vocabulary(*adapter_source, loaded.source);
    shape = train::shape_of(*adapter_source, loaded.source.config);
  }
  loaded.adapter_scale = shape.scale;
  parallel::ShardOptions options;
  options.device = device;
  options.dtype = dtype;
  options.trains = false;
  loaded.shards = std::make_unique<parallel::Shards>(
      loaded.source.config, model::lay_out(loaded.source.config, shape.layers), options,
      *loaded.comm);
  train::load_weights(*loaded.shards, *loaded.source.weights, loaded.source.config,
                      loaded.source.vocab_on_disk);
  if (adapter_source) train::load_adapter(*loaded.shards, *adapter_source, loaded.source.config);
  return loaded;
}

void require_no_model(const std::string& folder) {
  std::error_code error;
  if (const auto status = fs::status(folder, error);
      fs::exists(status) && !fs::is_directory(status))
    throw train::UsageError(folder + " is a file; give another folder as --output");
  for (const auto& [file, what] :
       {std::pair("config.json", "a model"), std::pair("adapter_config.json", "an adapter")})
    if (fs::exists(fs::path(folder) / file))
      throw train::UsageError(
          fmt::format("{} already contains {}; use another --output", folder, what));
}

void make_output_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw std::runtime_error(fmt::format("cannot create the folder {}: {}; give another --output",
                                         folder, error.message()));
}

void write_model_files(const train::ModelSource& source, const model::ModelConfig& config,
                       const std::string& folder) {
  const auto at = [&](const char* name) { return (fs::path(folder) / name).string(); };
  source.tokenizer.save(folder);
  checkpoint::write_file(at("generation_config.json"), model::generation_config_text(config));
  checkpoint::write_file(at("config.json"), model::model_config_text(config, source.config_text));
}

}  // namespace mgpu::recipes
