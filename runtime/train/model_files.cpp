#include "runtime/train/model_files.hpp"

#include <cmath>
#include <filesystem>

#include "rendezvous/base/contained_file.hpp"
#include "runtime/checkpoint/file.hpp"
#include "runtime/checkpoint/peft.hpp"
#include "runtime/model/write_config.hpp"
#include "runtime/train/adapter.hpp"

namespace mgpu::train {
namespace {

namespace fs = std::filesystem;

checkpoint::LoraConfig adapter_config(const TrainConfig& config, const model::LoraShape& shape) {
  checkpoint::LoraConfig lora;
  lora.base_model = config.model_name_or_path;
  lora.r = config.lora_r;
  lora.alpha = config.lora_alpha;
  lora.dropout = config.lora_dropout;
  lora.target_modules.assign(shape.targets.begin(), shape.targets.end());
  lora.modules_to_save.assign(shape.whole.begin(), shape.whole.end());
  lora.use_rslora = config.use_rslora;
  lora.use_dora = config.use_dora;
  if (config.pissa) {  // see begin_with_pissa
    lora.r *= 2;
    lora.alpha *= config.use_rslora ? std::sqrt(2.0) : 2;
  }
  return lora;
}

}  // namespace

ModelFiles::ModelFiles(const TrainConfig& config, const ModelSource& source, at::ScalarType dtype)
    : config_(config), source_(source), dtype_(dtype) {}

std::string ModelFiles::folder(const std::string& checkpoint) const {
  return fs::path(checkpoint + "/" + name_of("x")).parent_path().string();
}

std::string ModelFiles::name_of(const std::string& file) const {
  if (!config_.use_peft || config_.adapter_name == "default") return file;
  return config_.adapter_name + "/" + file;
}

const char* ModelFiles::stem() const {
  return config_.use_peft ? "adapter_model" : "model";
}

at::ScalarType ModelFiles::dtype() const {
  return config_.use_peft ? at::kFloat : dtype_;
}

Rename ModelFiles::rename() const {
  if (config_.use_peft) return adapter_name;
  return [](const std::string& name) { return name; };
}

std::vector<checkpoint::TensorPlan> ModelFiles::plan(const parallel::Shards& shards) const {
  return plan_of(shards, dtype(), !config_.use_peft, rename(), appended_);
}

void ModelFiles::visit(parallel::Shards& shards, const optim::Optimizer& optimizer,
                       const VisitTensor& visit) const {
  const auto visit_renamed = [&, rename = rename()](const std::string& name,
                                                    const at::Tensor& value) {
    if (const auto renamed = rename(name); !renamed.empty()) visit(renamed, value);
  };
  if (config_.use_peft)
    visit_master_weights(shards, optimizer, appended_, visit_renamed);
  else
    visit_weights(shards, true, appended_, visit_renamed);
}

std::unique_ptr<checkpoint::WeightsWriter> ModelFiles::writer(
    const std::string& folder, const parallel::Shards& shards) const {
  fs::create_directories(folder);
  return std::make_unique<checkpoint::WeightsWriter>(folder, plan(shards), checkpoint::kShardSize,
                                                     stem());
}

std::vector<checkpoint::FileRecord> ModelFiles::write(const std::string& checkpoint,
                                                      parallel::Shards& shards,
                                                      const optim::Optimizer& optimizer,
                                                      int rank) const {
  const auto out = rank == 0 ? writer(folder(checkpoint), shards) : nullptr;
  if (config_.use_peft)
    write_master_weights(shards, optimizer, out.get(), rename(), appended_);
  else
    write_weights(shards, out.get(), dtype(), true, rename(), appended_);
  auto records = out ? out->finish() : std::vector<checkpoint::FileRecord>{};
  for (auto& record : records) record.name = name_of(record.name);
  return records;
}

void ModelFiles::write_adapter(const std::string& folder, parallel::Shards& shards,
                               int rank) const {
  const auto out = rank == 0 ? writer(folder, shards) : nullptr;
  write_weights(shards, out.get(), at::kFloat, false, rename(), appended_);
  if (!out) return;
  out->finish();
  write_adapter_config(folder);
}

void ModelFiles::write_adapter_config(const std::string& folder) const {
  checkpoint::write_file(
      (fs::path(folder) / "adapter_config.json").string(),
      checkpoint::lora_config_text(adapter_config(config_, lora_shape(config_, source_.config))));
}

void ModelFiles::write_metadata(const std::string& checkpoint) const {
  const auto at = [&](const char* name) { return (fs::path(checkpoint) / name).string(); };
  source_.tokenizer.save(checkpoint);
  if (config_.use_peft) {
    fs::create_directories(folder(checkpoint));
    write_adapter_config(folder(checkpoint));
    return;
  }
  auto model = source_.config;
  model.dtype = checkpoint::torch_name_of(dtype_of(dtype_));
  model.nf4 = false;
  checkpoint::write_file(at("config.json"), model::model_config_text(model, source_.config_text));
  const auto generation = fs::path(source_.folder) / "generation_config.json";
  const bool copies = !source_.folder.empty() && fs::exists(generation) &&
                      !config_.special_tokens.contains("eos_token");  // it names the old one
  checkpoint::write_file(
      at("generation_config.json"),
      copies ? rendezvous::read_contained_file(source_.folder, "generation_config.json", 1 << 20)
             : model::generation_config_text(model));
}

checkpoint::FinalModelDraft::Replaced ModelFiles::replaced_models() const {
  return {.whole = !config_.use_peft || !source_.is_in(config_.output_dir),
          .adapter = !config_.use_peft || config_.adapter_name == "default"};
}

}  // namespace mgpu::train
