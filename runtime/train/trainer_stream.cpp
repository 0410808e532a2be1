// Training on a stream: rows are tokenized while the rows before them are trained on.
#include <fmt/format.h>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "rendezvous/base/host_name.hpp"
#include "runtime/checkpoint/json_text.hpp"
#include "runtime/data/digest.hpp"
#include "runtime/train/row_sources.hpp"
#include "runtime/train/trainer.hpp"

namespace mgpu::train {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostPasses = std::int64_t{1} << 20;
constexpr std::int64_t kMostWindows = std::int64_t{1} << 32;

data::StreamPlace place_in(const nlohmann::json& state) {
  const checkpoint::Fields top(state, "trainer_state.json: task_state");
  if (!top.at("stream").is_object()) top.fail("stream", "an object");
  const checkpoint::Fields place(top.at("stream"), "trainer_state.json: stream");
  return {.window = {.pass = place.integer("pass", 0, kMostPasses),
                     .window = place.integer("window", 0, kMostWindows)},
          .first_step = place.integer("first_step", 0, INT64_MAX)};
}

// The token cache may be shared by machines, and the path of the output folder may exist on
// several.
fs::path window_folder(const TrainConfig& config, int node) {
  const auto output = fs::absolute(config.output_dir).lexically_normal().string();
  const auto run = data::sha256(fmt::format("{}:{}", rendezvous::host_name(), output));
  return fs::path(token_cache(config)) / "streams" /
         fmt::format("{}-node{}", run.substr(0, 32), node);
}

// Without packing, windows have a whole number of steps, so that the last step of a window has as
// many rows as the others.
std::int64_t window_rows(const TrainConfig& config, int world) {
  if (config.packing) return config.buffer_size;
  const auto batch = plan_batch(config, world).global();
  return (config.buffer_size + batch - 1) / batch * batch;
}

}  // namespace

void Trainer::open_stream() {
  stream_encoder_ = std::make_unique<data::TextEncoder>(source_->tokenizer, source_->chat_template);
  encoder_digest_ = stream_encoder_->fingerprint();
  data::StreamOptions options;
  options.folder = window_folder(config_, contract_.group_rank);
  options.makes_windows = contract_.local_rank == 0;
  options.window_rows = window_rows(config_, contract_.world_size);
  options.mixture = mixture_of(config_);
  data::PrepareOptions rows;
  rows.max_length = config_.max_length;
  rows.skip_bad_rows = config_.on_bad_row == BadRow::skip;
  rows.threads = config_.dataset_num_proc;
  stream_ = std::make_unique<data::Stream>(
      row_sources(config_, config_.dataset_name, source_->config.vocab_size), rows, options,
      *stream_encoder_);
}

void Trainer::start_stream() {
  data::StreamPlace place{.first_step = progress_.step};
  if (progress_.task_state.is_object() && progress_.task_state.contains("stream"))
    place = place_in(progress_.task_state);
  progress_.task_state = {};
  stream_->start(place, schedule_options());
}

void Trainer::record_stream_place() {
  if (!stream_) return;
  const auto place = stream_->place_of(progress_.step);
  progress_.task_state = {{"stream",
                           {{"pass", place.window.pass},
                            {"window", place.window.window},
                            {"first_step", place.first_step}}}};
}

std::optional<data::StepBatches> Trainer::next_batches() {
  try {
    return loader_->next();
  } catch (...) {
    loader_.reset();  // its threads use the stream
    if (stream_) stream_->discard();
    throw;
  }
}

}  // namespace mgpu::train
