// The part of setup() that needs no GPU and no communicator: the model's files and the data.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <thread>

#include "rendezvous/store/client.hpp"
#include "runtime/checkpoint/file.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/data/text_encoder.hpp"
#include "runtime/train/new_tokenizer.hpp"
#include "runtime/train/row_sources.hpp"
#include "runtime/train/trainer.hpp"

namespace mgpu::train {
namespace {

namespace fs = std::filesystem;

// How long a rank waits for the other ranks to finish tokenizing.
constexpr auto kPrepareTimeout = std::chrono::hours(24);
// How long a file written by rank 0 may take to become visible here (network file systems).
constexpr auto kVisibleWithin = std::chrono::seconds(30);

// Nobody knows how long the rows of a stream are.
void check_window_of_stream(std::int64_t window, std::int64_t max_length) {
  if (window == 0 || max_length <= window) return;
  throw_recipe_error(fmt::format(
      "max_length: {} tokens are more than the model's sliding_window of {}, and sliding-window "
      "attention is not supported; with streaming, set max_length to at most {}",
      max_length, window, window));
}

}  // namespace

void Trainer::open_files() {
  if (needs_new_tokenizer(config_)) train_tokenizer();
  open_model();
  start_times_->measure("data", [&] { open_data(); });
  for (const auto* rows : {&train_data_, &eval_data_})
    if (*rows) check_window((*rows)->dataset);
  if (stream_) check_window_of_stream(source_->config.sliding_window, config_.max_length);
}

// The window has no effect on rows that are not longer, and with packing each row attends to
// itself.
void Trainer::check_window(const data::Dataset& rows) const {
  const auto window = source_->config.sliding_window;
  const auto lengths = rows.lengths();
  const auto longest = std::max_element(lengths.begin(), lengths.end());
  if (window == 0 || longest == lengths.end() || *longest <= window) return;
  throw_recipe_error(fmt::format(
      "{}: the row has {} tokens, which are more than the model's sliding_window of {}, and "
      "sliding-window attention is not supported; set max_length to at most {} to cut it",
      rows.where(static_cast<std::uint32_t>(longest - lengths.begin())), *longest, window, window));
}

// Rank 0 trains the tokenizer, and the other ranks wait until they see its files.
void Trainer::train_tokenizer() {
  checkpoint::make_writable_folder(config_.output_dir);
  if (takes_a_place()) return;  // the lost rank has waited for the files
  if (contract_.rank == 0)
    for (auto& note : make_tokenizer(config_)) notes_.push_back(std::move(note));
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
  options.cache = token_cache(config_);
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
  const data::TextEncoder encoder(source_->tokenizer, source_->chat_template);
  encoder_digest_ = encoder.fingerprint();
  return data::prepare(row_sources(config_, sources, source_->config.vocab_size), options, encoder);
}

void Trainer::open_data() {
  if (config_.streaming)
    open_stream();
  else
    train_data_ = prepare(config_.dataset_name, "training");
  if (!config_.eval_dataset.empty()) eval_data_ = prepare(config_.eval_dataset, "evaluation");
}

}  // namespace mgpu::train
