// The part of setup() that needs no GPU and no communicator: the model's files and the data.
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "rendezvous/store/client.hpp"
#include "runtime/checkpoint/file.hpp"
#include "runtime/data/text_encoder.hpp"
#include "runtime/train/trainer.hpp"

namespace mgpu::train {
namespace {

namespace fs = std::filesystem;

// How long a rank waits for the other ranks to finish tokenizing.
constexpr auto kPrepareTimeout = std::chrono::hours(24);

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
  open_model();
  check_window(source_->config, config_.max_length);
  open_data();
}

// Ranks wait for each other through the launcher's store, not with a collective: tokenizing may
// take hours, and a communicator should not stay idle that long.
data::Prepared Trainer::prepare(const std::vector<DataSource>& sources) {
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
  if (contract_.world_size > 1) {
    store.emplace(contract_.master_addr, contract_.master_port, kPrepareTimeout);
    options.barrier = [&] {
      store->barrier(fmt::format("mgpu-train/{}/{}/prepared-{}-{}", contract_.run_id,
                                 contract_.restart_count, sources.front().path, round++),
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
  train_data_ = prepare(config_.dataset_name);
  if (!config_.eval_dataset.empty()) eval_data_ = prepare(config_.eval_dataset);
}

}  // namespace mgpu::train
