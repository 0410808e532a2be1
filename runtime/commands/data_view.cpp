// mgpu-train data: the rows of a recipe as the model sees them.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "runtime/commands/commands.hpp"
#include "runtime/commands/hub_names.hpp"
#include "runtime/commands/validation.hpp"
#include "runtime/config/planning/batch_arithmetic.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/data/prepare.hpp"
#include "runtime/data/report_lines.hpp"
#include "runtime/data/text_encoder.hpp"
#include "runtime/data/view.hpp"
#include "runtime/train/model_source.hpp"
#include "runtime/train/new_tokenizer.hpp"
#include "runtime/train/row_sources.hpp"

namespace mgpu::recipes {
namespace {

bool uses_colour() {
  const char* const refused = ::getenv("NO_COLOR");
  return ::isatty(STDOUT_FILENO) == 1 && (refused == nullptr || *refused == '\0');
}

// What happened to the rows of a file, with the first bad ones.
void print_report(data::SourceReport report, std::int64_t max_length) {
  const char* const plural = report.rows == 1 ? "" : "s";
  fmt::print("{}: {} row{} of format {}, {} kept, {} tokens\n", report.path, report.rows, plural,
             report.format, report.kept, report.tokens);
  if (report.bad > 0)
    fmt::print("  {} of {} row{} skipped as bad{}:\n", report.bad, report.rows, plural,
               report.bad > report.bad_rows.size() ? ", the first ones" : "");
  for (const auto& row : report.bad_rows) fmt::print("    {}\n", row);
  report.bad = 0;
  const auto prefix = report.path + ": ";
  for (std::string_view line : data::lines_of(report, max_length)) {
    if (line.starts_with(prefix)) line.remove_prefix(prefix.size());
    fmt::print("  {}\n", line);
  }
}

void print_counts(const data::Prepared& prepared, const train::TrainConfig& config) {
  for (const auto& report : prepared.reports) print_report(report, config.max_length);
  const auto& dataset = prepared.dataset;
  fmt::print("\n{} examples, {} tokens, of which {} have a loss ({:.1f} %)\n\n", dataset.size(),
             dataset.tokens(), dataset.target_tokens(),
             100.0 * static_cast<double>(dataset.target_tokens()) /
                 static_cast<double>(std::max<std::uint64_t>(1, dataset.tokens())));
}

void print_examples(const data::Dataset& dataset, const data::Encoder& encoder,
                    std::int64_t count) {
  const bool colour = uses_colour();
  const auto shown = static_cast<std::uint32_t>(std::min<std::int64_t>(count, dataset.size()));
  if (shown > 0)
    fmt::print("\nTokens with a loss are {}.\n",
               colour ? "green, special tokens bold" : "within ⟦ and ⟧");
  for (std::uint32_t i = 0; i < shown; ++i)
    fmt::print("\n{}: {} tokens, {} with a loss\n{}\n", dataset.where(i), dataset.lengths()[i],
               dataset.target_counts()[i], data::shown_example(dataset[i], encoder, colour));
}

void show(const char* title, const std::vector<train::DataSource>& sources,
          const train::TrainConfig& config, const train::ModelSource& model, std::int64_t rows) {
  const data::TextEncoder encoder(model.tokenizer, model.chat_template);
  data::PrepareOptions options;
  options.cache = train::token_cache(config);
  options.max_length = config.max_length;
  options.skip_bad_rows = config.on_bad_row == train::BadRow::skip;
  options.threads = config.dataset_num_proc;
  const auto prepared =
      data::prepare(train::row_sources(config, sources, model.config.vocab_size), options, encoder);
  fmt::print("{}\n\n", title);
  print_counts(prepared, config);
  fmt::print("Examples by their number of tokens:\n");
  for (const auto& line : data::histogram(prepared.dataset.lengths())) fmt::print("  {}\n", line);
  print_examples(prepared.dataset, encoder, rows);
}

// Of a stream only the beginning of each dataset: it may be too large to tokenize all of it.
std::vector<train::DataSource> shown_sources(const train::TrainConfig& config) {
  auto sources = config.dataset_name;
  if (!config.streaming) return sources;
  for (auto& source : sources)
    if (source.max_samples == 0 || source.max_samples > config.buffer_size)
      source.max_samples = config.buffer_size;
  fmt::print("streaming: true, so these are the first {} rows of each dataset\n\n",
             config.buffer_size);
  return sources;
}

}  // namespace

int view_data(const train::DataCommand& command) {
  auto config = train::read_recipe(
      command.recipe.path,
      {.set = command.recipe.set, .allow_unknown = command.recipe.allow_unknown});
  if (config.task != train::Task::sft)
    throw train::UsageError("data: shows rows of the task sft; this recipe has another task");
  validate(config, train::intended_ranks(config));
  download_data(config);
  if (train::needs_new_tokenizer(config) &&
      !std::filesystem::exists(train::new_tokenizer_folder(config)))
    train::make_tokenizer(config);
  const auto model = train::open_model(config, train::ModelParts::without_weights);
  show("Training data", shown_sources(config), config, model, command.rows);
  if (!config.eval_dataset.empty()) {
    fmt::print("\n");
    show("Evaluation data", config.eval_dataset, config, model, command.rows);
  }
  return 0;
}

}  // namespace mgpu::recipes
