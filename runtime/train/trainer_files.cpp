// The part of setup() that needs no GPU and no communicator: the model's files and the data.
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <thread>

#include "rendezvous/store/client.hpp"
#include "runtime/checkpoint/file.hpp"
#include "runtime/data/text_encoder.hpp"
#include "runtime/train/new_tokenizer.hpp"
#include "runtime/train/trainer.hpp"

namespace mgpu::train {
namespace {

namespace fs = std::filesystem;

// How long a rank waits for the other ranks to finish tokenizing.
constexpr auto kPrepareTimeout = std::chrono::hours(24);
// How long a file written by rank 0 may take to become visible here (network file systems).
constexpr auto kVisibleWithin = std::chrono::seconds(30);

std::string cache_folder(const TrainConfig& config) {
  if (!config.dataset_prepared_path.empty()) return config.dataset_prepared_path;
  if (const char* home = getenv("XDG_CACHE_HOME")) return std::string(home) + "/mgpu-train";
  if (const char* home = getenv("HOME")) return std::string(home) + "/.cache/mgpu-train";
  return (fs::path(config.output_dir) / ".tokens").string();
}

data::RowOptions row_options(const TrainConfig& config, std::int64_t vocabulary) {
  data::RowOptions rows;
  rows.format = config.dataset_format;
  rows.text_field = config.dataset_text_field;
  rows.prompt_template = config.prompt_template;
  rows.completion_only_loss = config.completion_only_loss;
  rows.assistant_only_loss = config.assistant_only_loss;
  rows.vocabulary = vocabulary;
  return rows;
}

}  // namespace

void Trainer::open_files() {
  if (needs_new_tokenizer(config_)) train_tokenizer();
  open_model();
  check_window(source_->config, config_.max_length);
  start_times_->measure("data", [&] { open_data(); });
}

// Rank 0 trains the tokenizer, and the other ranks wait until they see its files.
void Trainer::train_tokenizer() {
  checkpoint::make_writable_folder(config_.output_dir);
  if (takes_a_place()) return;  // the lost rank has waited for the files
  if (contract_.rank == 0)
    for (auto& note : make_tokenizer(config_, row_options(config_, 0)))
      notes_.push_back(std::move(note));
  if (contract_.world_size == 1) return;
  rendezvous::store::StoreClient store(contract_.master_addr, contract_.master_port,
                                       kPrepareTimeout);
  store.barrier(
      fmt::format("mgpu-train/{}/{}/tokenizer", contract_.run_id, contract_.restart_count),
      contract_.world_size);
  const auto folder = new_tokenizer_folder(config_);
  const auto deadline = std::chrono::steady_clock::now() + kVisibleWithin;
  while (!fs::exists(folder)) {
    if (std::chrono::steady_clock::now() > deadline)
      throw std::runtime_error(fmt::format(
          "cannot see {}, which rank 0 has written; output_dir must be on a file system that all "
          "nodes share",
          folder));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

// Ranks wait for each other through the launcher's store, not with a collective: tokenizing may
// take hours, and a communicator should not stay idle that long.
data::Prepared Trainer::prepare(const std::vector<DataSource>& sources, const char* purpose) {
  data::PrepareOptions options;
  options.cache = cache_folder(config_);
  options.rows = row_options(config_, source_->config.vocab_size);
  options.max_length = config_.max_length;
  options.skip_bad_rows = config_.on_bad_row == BadRow::skip;
  options.threads = config_.dataset_num_proc;
  options.part = contract_.rank;
  options.parts = contract_.world_size;
  std::optional<rendezvous::store::StoreClient> store;
  int round = 0;
  if (takes_a_place()) {
    options.barrier = [] {};  // the lost rank and all others have prepared their parts
  } else if (contract_.world_size > 1) {
    store.emplace(contract_.master_addr, contract_.master_port, kPrepareTimeout);
    options.barrier = [&] {
      store->barrier(fmt::format("mgpu-train/{}/{}/prepared-{}-{}", contract_.run_id,
                                 contract_.restart_count, purpose, round++),
                     contract_.world_size);
    };
  }
  std::vector<data::Source> files;
  for (const auto& source : sources) files.push_back({source.path, source.weight});
  const data::TextEncoder encoder(source_->tokenizer, source_->chat_template);
  encoder_digest_ = encoder.fingerprint();
  return data::prepare(files, options, encoder);
}

void Trainer::open_data() {
  train_data_ = prepare(config_.dataset_name, "training");
  if (!config_.eval_dataset.empty()) eval_data_ = prepare(config_.eval_dataset, "evaluation");
}

}  // namespace mgpu::train
