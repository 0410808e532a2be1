#include "runtime/train/saver.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "runtime/checkpoint/checkpoint_folder.hpp"
#include "runtime/checkpoint/file.hpp"
#include "runtime/checkpoint/final_model.hpp"
#include "runtime/comm/text.hpp"
#include "runtime/train/adapter.hpp"
#include "runtime/train/adapter_start.hpp"
#include "runtime/train/file_copies.hpp"
#include "runtime/train/snapshot_memory.hpp"
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

// Removes older checkpoints. An earlier run may have saved later steps, which must not displace
// this one.
void rotate_checkpoints(const TrainConfig& config, std::int64_t step,
                        const std::optional<std::int64_t>& best) {
  std::vector<std::int64_t> kept{step};
  if (best) kept.push_back(*best);
  try {
    checkpoint::rotate(config.output_dir, config.save_total_limit, kept);
  } catch (const std::exception& e) {
    throw std::runtime_error(fmt::format("more than save_total_limit {} checkpoints stay: {}",
                                         config.save_total_limit, e.what()));
  }
}

std::string publish(checkpoint::CheckpointDraft& draft, const std::vector<FileRecord>& records) {
  return draft.publish(records, {{"mgpu-train", MGPU_VERSION}});
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

Saver::Saver(const TrainConfig& config, const rendezvous::Contract& contract,
             const ModelSource& source, Learner& learner)
    : config_(config),
      contract_(contract),
      source_(source),
      learner_(learner),
      model_files_(config, source, learner.options().shards.dtype),
      snapshot_(learner.options().shards.device),
      writer_(contract, snapshot_) {}

// Returns rank 0's text on every rank.
std::string Saver::share_text(const std::string& text) const {
  return comm::share_text(learner_.comm(), text, learner_.options().shards.device,
                          "broadcast of the checkpoint path");
}

std::vector<FileRecord> Saver::gather(const FileRecord& own) const {
  std::vector<FileRecord> records;
  for (const auto& text :
       comm::gather_texts(learner_.comm(), fmt::format("{} {} {}", own.name, own.size, own.digest),
                          learner_.options().shards.device, "all-gather of checkpoint checksums")) {
    auto& record = records.emplace_back();
    std::istringstream(text) >> record.name >> record.size >> record.digest;
  }
  return records;
}

std::vector<FileRecord> Saver::write_model(const std::string& folder) {
  return model_files_.write(folder, learner_.shards(), learner_.optimizer(),
                            learner_.comm().rank());
}

void Saver::write_adapter(const std::string& folder) {
  model_files_.write_adapter(folder, learner_.shards(), learner_.comm().rank());
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

Saver::Draft Saver::begin_draft(std::int64_t step) const {
  Draft draft;
  if (learner_.comm().rank() == 0)
    draft.own = std::make_unique<checkpoint::CheckpointDraft>(config_.output_dir, step);
  draft.folder = share_text(draft.own ? draft.own->path() : "");
  draft.target = share_text(draft.own ? draft.own->target() : "");
  return draft;
}

std::string Saver::save(const Progress& progress, bool last) {
  auto draft = begin_draft(progress.step);
  auto target = draft.target;
  auto files = own_files();
  if (has_memory_for(files, last))
    save_in_background(std::move(draft), std::move(files), progress);
  else
    save_at_once(std::move(draft), progress);
  return target;
}

std::vector<FileRecord> Saver::write_parts(const std::string& folder) const {
  std::vector<FileRecord> records;
  if (config_.save_only_model) return records;
  for (const auto& write : write_parts_) {
    const auto own = write(folder);
    if (!own) continue;
    const auto parts = gather(*own);
    records.insert(records.end(), parts.begin(), parts.end());
  }
  return records;
}

void Saver::save_at_once(Draft draft, const Progress& progress) {
  auto records = write_model(draft.folder);
  if (!config_.save_only_model) {
    const auto states = gather(write_own_state(draft.folder));
    records.insert(records.end(), states.begin(), states.end());
  }
  const auto parts = write_parts(draft.folder);
  records.insert(records.end(), parts.begin(), parts.end());
  if (draft.own) {
    model_files_.write_metadata(draft.folder);
    checkpoint::write_file((fs::path(draft.folder) / kProgressFile).string(),
                           progress_text(progress));
    publish(*draft.own, records);
    try {
      rotate_checkpoints(config_, progress.step, progress.best_step);
    } catch (const std::exception& e) {
      note_ = e.what();
    }
  }
  learner_.comm().barrier("barrier after writing a checkpoint");
}

Saver::OwnFiles Saver::own_files() const {
  auto& comm = learner_.comm();
  OwnFiles own;
  if (comm.rank() == 0) {
    const auto files = checkpoint::weights_files(model_files_.plan(learner_.shards()),
                                                 checkpoint::kShardSize, model_files_.stem());
    if (files.size() > 1) own.index = checkpoint::weight_index_text(files);
    for (const auto& file : files)
      own.files.push_back({model_files_.name_of(file.name), file.tensors});
  }
  if (!config_.save_only_model) {
    own.state =
        training_state_tensors(learner_.shards(), learner_.optimizer(), comm.rank(), comm.world());
    own.files.push_back({training_state_file(comm.rank(), comm.world()), plan_of(own.state)});
  }
  return own;
}

// Whether the ranks can write this checkpoint in the background. All ranks decide together, once.
bool Saver::has_memory_for(const OwnFiles& files, bool last) {
  if (!config_.async_save) return false;
  if (in_background_ || last) return in_background_.value_or(false);
  const auto lack =
      reserve_on_all_ranks(snapshot_, Snapshot::size_of(files.files), contract_.group_rank,
                           learner_.comm(), learner_.options().shards.device);
  in_background_ = lack.empty();
  if (!*in_background_)
    note_ = fmt::format(
        "training stands still while checkpoints are written: writing them in the background "
        "needs {} (async_save: false suppresses this note)",
        lack);
  return *in_background_;
}

void Saver::take_snapshot(const OwnFiles& files) {
  snapshot_.lay_out(files.files);
  const bool first = learner_.comm().rank() == 0;
  const bool lasting = !config_.use_peft && learner_.options().shards.zero_stage < 3;
  model_files_.visit(learner_.shards(), learner_.optimizer(),
                     [&](const std::string& name, const at::Tensor& value) {
                       if (first) snapshot_.add(name, value, lasting);
                     });
  for (const auto& [name, tensor] : files.state) snapshot_.add(name, tensor, true);
  snapshot_.start();
}

void Saver::save_in_background(Draft draft, OwnFiles files, const Progress& progress) {
  take_snapshot(files);
  SaveJob job;
  job.folder = draft.folder;
  job.known = write_parts(draft.folder);
  if (draft.own) {
    job.write_small_files = [this, folder = draft.folder, index = std::move(files.index),
                             text = progress_text(progress)] {
      model_files_.write_metadata(folder);
      if (!index.empty())
        checkpoint::write_file(
            model_files_.folder(folder) + "/" + checkpoint::weight_index_name(model_files_.stem()),
            index);
      checkpoint::write_file((fs::path(folder) / kProgressFile).string(), text);
    };
    job.publish = publish;
    job.remove_older = [this, step = progress.step, best = progress.best_step] {
      rotate_checkpoints(config_, step, best);
    };
  }
  job.draft = std::move(draft.own);
  writer_.begin(std::move(job));
}

bool Saver::ended(std::chrono::milliseconds limit) {
  if (!writer_.ended(limit)) return false;
  if (auto note = writer_.take_note()) note_ = std::move(note);
  return true;
}

bool Saver::abandon() {
  in_background_.reset();
  return writer_.abandon();
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
    const checkpoint::Weights adapter(model_files_.folder(folder), model_files_.stem());
    if (config_.pissa)
      model_files_.set_appended(resume_with_pissa(shards, source_, config_, adapter));
    for (const auto& unit : shards.layout().units)
      for (const auto& slot : unit.trained.slots)
        if (!model_files_.appended().contains(slot.name))
          shards.set(slot.name, tensor_over(adapter.get(
                                    checkpoint::TensorShape{adapter_name(slot.name), slot.shape})));
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

void Saver::publish_model(const std::string& folder) {
  if (learner_.comm().rank() == 0) {
    checkpoint::FinalModelDraft draft(config_.output_dir);
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const auto name = entry.path().lexically_relative(folder);
      if (!entry.is_regular_file() || !is_model_file(name.begin()->string())) continue;
      fs::create_directories((draft.path() / name).parent_path());
      checkpoint::copy_file(entry.path().string(), (draft.path() / name).string());
    }
    draft.publish(model_files_.replaced_models());
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
    model_files_.write_metadata(folder);
    draft->publish(model_files_.replaced_models());
  }
  learner_.comm().barrier("barrier after writing the model");
}

}  // namespace mgpu::train
