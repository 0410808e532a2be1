#include "runtime/train/new_tokenizer.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "rendezvous/base/input_error.hpp"
#include "runtime/checkpoint/file.hpp"
#include "runtime/checkpoint/json_text.hpp"
#include "runtime/data/tokenizer_text.hpp"
#include "runtime/train/row_sources.hpp"

namespace mgpu::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSettingsFile =
    "settings.json";  // of the training, beside the tokenizer's files
constexpr std::size_t kLongestSettings = 1 << 16;

std::string settings_text(const TrainConfig& config) {
  return nlohmann::ordered_json{{"tokenizer_kind", config.tokenizer_kind},
                                {"vocab_size", config.vocab_size}}
             .dump() +
         "\n";
}

std::vector<std::string> reuse(const TrainConfig& config, const std::string& folder) {
  const auto path = (fs::path(folder) / kSettingsFile).string();
  const auto saved = checkpoint::read_file(path, kLongestSettings);
  if (saved != settings_text(config)) {
    const auto settings = checkpoint::parse_json(saved, path);
    throw rendezvous::InputError(fmt::format(
        "{} was trained with {}, but the recipe has tokenizer_kind {} and vocab_size {}; restore "
        "these settings, or set another output_dir to train another tokenizer",
        folder, settings.dump(), config.tokenizer_kind, config.vocab_size));
  }
  return {fmt::format("using the tokenizer {}, which an earlier start trained", folder)};
}

}  // namespace

bool needs_new_tokenizer(const TrainConfig& config) {
  return config.task == Task::sft && !config.model_size.empty() && config.tokenizer_path.empty();
}

std::string new_tokenizer_folder(const TrainConfig& config) {
  return (fs::path(config.output_dir) / "tokenizer").string();
}

std::vector<std::string> make_tokenizer(const TrainConfig& config) {
  const auto folder = new_tokenizer_folder(config);
  if (fs::exists(folder)) return reuse(config, folder);
  std::vector<data::TextFile> files;
  for (const auto& source : config.dataset_name)
    files.push_back({source.path, source.file_type, row_options(config, source, 0)});
  const data::TextOptions options{.skip_bad_rows = config.on_bad_row == BadRow::skip,
                                  .threads = config.dataset_num_proc};
  const text::TokenizerTraining training{.kind = text::tokenizer_kind(config.tokenizer_kind),
                                         .vocab_size = static_cast<std::size_t>(config.vocab_size)};
  const auto made = text::train_tokenizer(data::read_text(files, training.kind, options), training);

  const auto draft = folder + ".part";
  fs::remove_all(draft);
  fs::create_directories(draft);
  for (const auto& [name, content] : made.files)
    checkpoint::write_file((fs::path(draft) / name).string(), content);
  checkpoint::write_file((fs::path(draft) / kSettingsFile).string(), settings_text(config));
  fs::rename(draft, folder);
  std::vector<std::string> notes{
      fmt::format("tokenizer_path is not set: trained a tokenizer with {} tokens ({}) on the text "
                  "of the datasets, saved as {}",
                  made.vocab_size, config.tokenizer_kind, folder)};
  if (made.vocab_size < training.vocab_size)
    notes.push_back(fmt::format("the text yields only {} tokens, fewer than vocab_size: {}",
                                made.vocab_size, training.vocab_size));
  return notes;
}

}  // namespace mgpu::train
