#include "runtime/commands/validation.hpp"

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"
#include "rendezvous/base/passing_error.hpp"
#include "runtime/checkpoint/hub_cache.hpp"
#include "runtime/commands/dataset_info.hpp"
#include "runtime/commands/dataset_sources.hpp"
#include "runtime/commands/hub_names.hpp"
#include "runtime/config/grpo_values.hpp"
#include "runtime/config/planning/batch_arithmetic.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/data/file_format.hpp"
#include "runtime/data/row_stream.hpp"
#include "runtime/grpo/loss_settings.hpp"
#include "runtime/hub/repository.hpp"
#include "runtime/rewards/catalog.hpp"
#include "runtime/rl/recipe.hpp"
#include "runtime/rl/reward_model_files.hpp"
#include "runtime/text/chat_template.hpp"
#include "runtime/text/tokenizer.hpp"
#include "runtime/train/model_source.hpp"

namespace mgpu::recipes {
namespace {

class Errors {
 public:
  // Runs a check and records what it throws, unless the next attempt may not meet it again.
  template <class Check>
  void collect(const Check& check) {
    try {
      check();
    } catch (const train::RecipeError& e) {
      for (const auto& line : e.lines()) add(line);
    } catch (const std::runtime_error& e) {
      if (rendezvous::is_passing(e)) throw;
      add(e.what());
    }
  }

  void throw_if_any() && {
    if (!lines_.empty()) throw train::RecipeError(std::move(lines_));
  }

 private:
  // Two checks that read the same key find the same error.
  void add(const std::string& line) {
    if (std::find(lines_.begin(), lines_.end(), line) == lines_.end()) lines_.push_back(line);
  }

  std::vector<std::string> lines_;
};

void check_rewards(const train::TrainConfig& config) {
  const auto settings = rl::reward_settings(config);
  std::vector<std::string> functions;
  for (const auto& entry : rl::reward_names(config))
    if (!rl::is_reward_model(entry, settings)) functions.push_back(entry);
  if (!functions.empty()) rewards::make_rewards(functions, settings);
}

// The chat template must be there, and Jinja.
void check_template(const train::TrainConfig& config) {
  try {
    const auto source = train::chosen_template(config, "");
    if (!source.empty()) text::ChatTemplate(source, {});
  } catch (const std::runtime_error& e) {
    rendezvous::throw_like(e, fmt::format("chat_template: {}", e.what()));
  }
}

// Checks that the files of a dataset are here, unless it is one of a hub.
void check_source(train::DataSource source) {
  apply_dataset_info(source);
  for (const auto& file : files_of({source}, [](const auto&) { return std::string(); }))
    if (!is_named_dataset(file)) data::format_of_file(file.path, file.file_type);
}

// The final model of full fine-tuning would overwrite its base model.
void check_output(const train::TrainConfig& config) {
  if (config.use_peft || !config.save_final_model || !config.model_size.empty()) return;
  std::error_code missing;
  if (std::filesystem::equivalent(config.model_name_or_path, config.output_dir, missing))
    throw std::runtime_error(fmt::format(
        "output_dir: {} is the folder of model_name_or_path, and the trained model would overwrite "
        "the one that training starts from; choose another output_dir",
        config.output_dir));
}

// A stream does not know how many rows it has.
void check_stream(const train::TrainConfig& config) {
  if (!config.streaming || config.task != train::Task::sft) return;
  for (const auto& source : config.dataset_name)
    for (const auto& part : data::parse_split(source.split))
      data::check_streamable(source.path, part.range);
}

void validate_grpo(const train::TrainConfig& config, Errors& errors) {
  errors.collect([&] { rl::generation_settings(config); });
  errors.collect([&] { grpo::loss_settings(config); });
  errors.collect([&] { check_rewards(config); });
  errors.collect([&] { rl::reward_weights(config); });
  if (!train::GrpoValues(config).uses_server()) return;
  errors.collect([&] { rl::server_address(config); });
  errors.collect([&] { rl::server_request(config); });
}

}  // namespace

void validate(const train::TrainConfig& config, std::int64_t ranks) {
  Errors errors;
  errors.collect([&] { train::check_ranks(config, ranks); });
  errors.collect([&] { check_template(config); });
  errors.collect([&] { check_output(config); });
  for (const auto* sources : {&config.dataset_name, &config.eval_dataset})
    for (const auto& source : *sources) errors.collect([&] { check_source(source); });
  errors.collect([&] { check_stream(config); });
  if (config.task == train::Task::grpo) validate_grpo(config, errors);
  std::move(errors).throw_if_any();
}

std::vector<std::string> missing_folders(const train::TrainConfig& config) {
  std::vector<std::string> lines;
  const auto look_for = [&](const char* key, const std::string& value, const auto& open) {
    if (value.empty() || hub::is_model_name(value)) return;
    try {
      open();
    } catch (const std::runtime_error& e) {
      if (rendezvous::is_passing(e)) throw;
      lines.push_back(fmt::format("{}: {}", key, e.what()));
    }
  };
  if (config.model_size.empty())
    look_for("model_name_or_path", config.model_name_or_path, [&] {
      checkpoint::resolve_model_config(config.model_name_or_path, config.model_revision);
    });
  look_for("adapter_path", config.adapter_path,
           [&] { checkpoint::resolve_model_config(config.adapter_path); });
  look_for("tokenizer_path", config.tokenizer_path,
           [&] { text::Tokenizer::require_folder(config.tokenizer_path); });
  return lines;
}

void require_folders(const train::TrainConfig& config) {
  if (auto lines = missing_folders(config); !lines.empty())
    throw train::RecipeError(std::move(lines));
}

void check_model(train::TrainConfig config, const std::string& folder) {
  config.model_name_or_path = folder;
  const auto model = train::open_model_config(config);
  train::lora_shape(config, model);
  if (config.tokenizer_path.empty()) text::Tokenizer::load(folder);
}

}  // namespace mgpu::recipes
