#include "runtime/train/saver.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/max.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <stdexcept>

#include "rendezvous/base/contained_file.hpp"
#include "runtime/checkpoint/checkpoint_folder.hpp"
#include "runtime/checkpoint/file.hpp"
#include "runtime/checkpoint/final_model.hpp"
#include "runtime/checkpoint/peft.hpp"
#include "runtime/comm/text.hpp"
#include "runtime/model/write_config.hpp"
#include "runtime/train/adapter.hpp"
#include "runtime/train/file_copies.hpp"
#include "runtime/train/training_state.hpp"
#include "runtime/train/weights_io.hpp"

namespace mgpu::train {
namespace {

namespace fs = std::filesystem;
using checkpoint::FileRecord;

constexpr const char* kProgressFile = "trainer_state.json";
constexpr std::size_t kLongestState = 1U << 30;

bool is_model_file(const std::string& name) {
  return name != kProgressFile && name != checkpoint::kManifestName &&
         !name.starts_with("training_state");
}

// Throws unless training can resume from the checkpoint.
void require_training_state(const checkpoint::Manifest& manifest) {
  for (const auto& file : manifest.files)
    if (file.name.starts_with("training_state")) return;
  throw std::runtime_error("it has no training state (save_only_model)");
}

checkpoint::LoraConfig adapter_config(const TrainConfig& config, const model::LoraShape& shape) {
  checkpoint::LoraConfig lora;
  lora.base_model = config.model_name_or_path;
  lora.r = config.lora_r;
  lora.alpha = config.lora_alpha;
  lora.dropout = config.lora_dropout;
  lora.target_modules.assign(shape.targets.begin(), shape.targets.end());
  lora.modules_to_save.assign(shape.whole.begin(), shape.whole.end());
  lora.use_rslora = config.use_rslora;
  return lora;
}

}  // namespace

checkpoint::FoundCheckpoint search_checkpoint(const std::string& output_dir,
                                              const std::string& wanted) {
  if (wanted == "no") return {};
  const int threads = FileCopies::default_threads();
  if (wanted == "auto" || wanted == "true")
    return checkpoint::find_newest_complete(output_dir, threads, require_training_state);
  return {.path = wanted, .step = checkpoint::verify(wanted, threads).step, .skipped = {}};
}

Saver::Saver(const TrainConfig& config, const ModelSource& source, Learner& learner)
    : config_(config), source_(source), learner_(learner) {}

// Returns rank 0's text on every rank.
std::string Saver::share_text(const std::string& text) const {
  return comm::share_text(learner_.comm(), text, learner_.options().shards.device,
                          "broadcast of the checkpoint path");
}

std::vector<FileRecord> Saver::gather(const FileRecord& own) const {
  auto& comm = learner_.comm();
  const auto on_device = at::TensorOptions(learner_.options().shards.device);
  const auto text = fmt::format("{} {} {}", own.name, own.size, own.digest);
  const auto all_of = [&](const at::Tensor& mine) {
    auto all = at::empty({comm.world() * mine.numel()}, mine.options().device(on_device.device()));
    comm.all_gather(all, mine.to(on_device.device()), "all-gather of checkpoint checksums").wait();
    return all.to(at::kCPU);
  };
  const auto length = static_cast<std::int64_t>(text.size()) + 1;  // ends with a 0
  const auto room = all_of(at::full({1}, length, at::kLong)).max().item<std::int64_t>();
  auto bytes = at::zeros({room}, at::kByte);
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
  const auto all = all_of(bytes);
  std::vector<FileRecord> records;
  for (int rank = 0; rank < comm.world(); ++rank) {
    std::istringstream line(static_cast<const char*>(all.const_data_ptr()) + rank * room);
    FileRecord record;
    line >> record.name >> record.size >> record.digest;
    records.push_back(std::move(record));
  }
  return records;
}

// As in PEFT, an adapter whose name is not "default" is stored in a subfolder of that name.
std::string Saver::model_folder(const std::string& folder) const {
  if (!config_.use_peft || config_.adapter_name == "default") return folder;
  return (fs::path(folder) / config_.adapter_name).string();
}

std::vector<FileRecord> Saver::write_all_weights(const std::string& folder) {
  auto& shards = learner_.shards();
  const auto dtype = learner_.options().shards.dtype;
  const Rename same = [](const std::string& name) { return name; };
  std::unique_ptr<checkpoint::WeightsWriter> writer;
  if (learner_.comm().rank() == 0)
    writer = std::make_unique<checkpoint::WeightsWriter>(folder, plan_of(shards, dtype, true, same),
                                                         checkpoint::kShardSize, "model");
  write_weights(shards, writer.get(), dtype, true, same);
  return writer ? writer->finish() : std::vector<FileRecord>{};
}

// Adapters are saved in fp32, as PEFT does even beside a 16-bit base: they are small.
std::vector<FileRecord> Saver::write_adapter_weights(const std::string& folder, AdapterBits bits) {
  auto& shards = learner_.shards();
  std::unique_ptr<checkpoint::WeightsWriter> writer;
  if (learner_.comm().rank() == 0) {
    fs::create_directories(folder);
    writer = std::make_unique<checkpoint::WeightsWriter>(
        folder, plan_of(shards, at::kFloat, false, adapter_name), checkpoint::kShardSize,
        "adapter_model");
  }
  if (bits == AdapterBits::master)
    write_master_weights(shards, learner_.optimizer(), writer.get(), adapter_name);
  else
    write_weights(shards, writer.get(), at::kFloat, false, adapter_name);
  return writer ? writer->finish() : std::vector<FileRecord>{};
}

std::vector<FileRecord> Saver::write_model(const std::string& folder) {
  const auto own_folder = model_folder(folder);
  auto records = config_.use_peft ? write_adapter_weights(own_folder, AdapterBits::master)
                                  : write_all_weights(own_folder);
  if (own_folder != folder)
    for (auto& record : records) record.name = config_.adapter_name + "/" + record.name;
  return records;
}

void Saver::write_adapter_config(const std::string& folder) const {
  checkpoint::write_file(
      (fs::path(folder) / "adapter_config.json").string(),
      checkpoint::lora_config_text(adapter_config(config_, lora_shape(config_, source_.config))));
}

void Saver::write_adapter(const std::string& folder) {
  write_adapter_weights(folder, AdapterBits::rounded);
  if (learner_.comm().rank() == 0) write_adapter_config(folder);
}

void Saver::write_metadata(const std::string& folder) const {
  const auto at = [&](const char* name) { return (fs::path(folder) / name).string(); };
  source_.tokenizer.save(folder);
  if (config_.use_peft) {
    fs::create_directories(model_folder(folder));
    write_adapter_config(model_folder(folder));
    return;
  }
  auto model = source_.config;
  model.dtype = checkpoint::torch_name_of(dtype_of(learner_.options().shards.dtype));
  model.nf4 = false;
  checkpoint::write_file(at("config.json"), model::model_config_text(model, source_.config_text));
  const auto generation = fs::path(source_.folder) / "generation_config.json";
  checkpoint::write_file(
      at("generation_config.json"),
      !source_.folder.empty() && fs::exists(generation)
          ? rendezvous::read_contained_file(source_.folder, "generation_config.json", 1 << 20)
          : model::generation_config_text(model));
}

// Writes this rank's part of the training state. If rank 0 has given up the checkpoint and removed
// its folder, the cause is rank 0's error and not the missing folder: this rank lets rank 0 fail
// first.
FileRecord Saver::write_own_state(const std::string& folder) const {
  auto& comm = learner_.comm();
  try {
    return write_training_state(folder, learner_.shards(), learner_.optimizer(), comm.rank(),
                                comm.world());
  } catch (const std::exception&) {
    if (comm.rank() != 0 && !fs::exists(folder))
      comm.barrier("wait for rank 0, which has given up the checkpoint");
    throw;
  }
}

std::string Saver::save(const Progress& progress) {
  auto& comm = learner_.comm();
  const bool first = comm.rank() == 0;
  std::unique_ptr<checkpoint::CheckpointDraft> draft;
  if (first) {
    draft = std::make_unique<checkpoint::CheckpointDraft>(config_.output_dir, progress.step);
  }
  const auto folder = share_text(first ? draft->path() : "");
  auto records = write_model(folder);
  if (!config_.save_only_model) {
    const auto states = gather(write_own_state(folder));
    records.insert(records.end(), states.begin(), states.end());
    for (const auto& write : write_parts_) {
      const auto own = write(folder);
      if (!own) continue;
      const auto parts = gather(*own);
      records.insert(records.end(), parts.begin(), parts.end());
    }
  }
  std::string path;
  if (first) {
    write_metadata(folder);
    checkpoint::write_file((fs::path(folder) / kProgressFile).string(), progress_text(progress));
    path = draft->publish(records, {{"mgpu-train", MGPU_VERSION}});
    std::vector<std::int64_t> kept{
        progress.step};  // an earlier run may have saved later steps, which must not displace these
    if (progress.best_step) kept.push_back(*progress.best_step);
    checkpoint::rotate(config_.output_dir, config_.save_total_limit, kept);
  }
  return share_text(path);
}

std::string Saver::share(const checkpoint::FoundCheckpoint& found) {
  if (learner_.comm().rank() == 0) checkpoint::remove_unfinished_saves(config_.output_dir);
  for (const auto& line : found.skipped) std::cerr << "mgpu-train: " << line << "\n";
  return share_text(found.path);
}

Progress Saver::read_progress(const std::string& folder) const {
  const auto file = (fs::path(folder) / kProgressFile).string();
  return parse_progress(checkpoint::read_file(file, kLongestState), file);
}

void Saver::load_model(const std::string& folder) {
  auto& shards = learner_.shards();
  if (config_.use_peft) {
    // The checkpoint holds only the trained tensors. The frozen ones are loaded from the base model
    // again.
    if (source_.weights) {
      load_weights(shards, *source_.weights, source_.config, source_.vocab_on_disk);
    } else {
      draw_weights(shards, source_.config.initializer_range, config_.seed);
    }
    const checkpoint::Weights adapter(model_folder(folder), "adapter_model");
    for (const auto& unit : shards.layout().units)
      for (const auto& slot : unit.trained.slots)
        shards.set(
            slot.name,
            tensor_over(adapter.get(checkpoint::TensorShape{adapter_name(slot.name), slot.shape})));
  } else {
    load_weights(shards, checkpoint::Weights(folder), source_.config, source_.config.vocab_size);
  }
}

void Saver::load_state(const std::string& folder, const Progress& progress) {
  learner_.create_optimizer();
  if (!fs::exists(fs::path(folder) / "training_state")) {
    throw std::runtime_error(
        folder +
        " has no training state (save_only_model), so training cannot resume from "
        "it; set model_name_or_path to it instead");
  }
  read_training_state(folder, learner_.optimizer());
  learner_.optimizer().set_steps_taken(progress.updates);
}

// An adapter replaces a whole model that an earlier run left, but not its own base model.
checkpoint::FinalModelDraft::Replaced Saver::replaced_models() const {
  return {.whole = !config_.use_peft || !source_.is_in(config_.output_dir),
          .adapter = !config_.use_peft || config_.adapter_name == "default"};
}

void Saver::publish_model(const std::string& folder) {
  if (learner_.comm().rank() == 0) {
    checkpoint::FinalModelDraft draft(config_.output_dir);
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const auto name = entry.path().lexically_relative(folder);
      if (!entry.is_regular_file() || !is_model_file(name.begin()->string())) continue;
      fs::create_directories((draft.path() / name).parent_path());
      checkpoint::copy_file(entry.path().string(), (draft.path() / name).string());
    }
    draft.publish(replaced_models());
  }
  learner_.comm().barrier("barrier after writing the model");
}

void Saver::write_final_model() {
  std::unique_ptr<checkpoint::FinalModelDraft> draft;
  if (learner_.comm().rank() == 0)
    draft = std::make_unique<checkpoint::FinalModelDraft>(config_.output_dir);
  const auto folder = share_text(draft ? draft->path() : "");
  write_model(folder);
  if (draft) {
    write_metadata(folder);
    draft->publish(replaced_models());
  }
  learner_.comm().barrier("barrier after writing the model");
}

}  // namespace mgpu::train
