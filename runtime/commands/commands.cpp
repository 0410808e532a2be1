#include "runtime/commands/commands.hpp"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/printable.hpp"
#include "rendezvous/contract.hpp"
#include "runtime/checkpoint/file.hpp"
#include "runtime/commands/family_names.hpp"
#include "runtime/commands/hub_names.hpp"
#include "runtime/commands/validation.hpp"
#include "runtime/commands/visible_gpus.hpp"
#include "runtime/config/check.hpp"
#include "runtime/config/grpo_values.hpp"
#include "runtime/config/launch_command.hpp"
#include "runtime/config/planning/batch_arithmetic.hpp"
#include "runtime/config/planning/generation_arithmetic.hpp"
#include "runtime/config/planning/known_models.hpp"
#include "runtime/config/planning/planner.hpp"
#include "runtime/config/planning/role_memory.hpp"
#include "runtime/config/planning/suggestion.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/config/templates.hpp"
#include "runtime/rl/recipe.hpp"
#include "runtime/rl/reward_model_files.hpp"
#include "runtime/train/model_source.hpp"

namespace mgpu::recipes {
namespace {

train::TrainConfig read(const train::RecipeArguments& recipe) {
  return train::read_recipe(recipe.path,
                            {.set = recipe.set, .allow_unknown = recipe.allow_unknown});
}

// For the configurations and tokenizers of models that are not in the cache.
constexpr std::chrono::seconds kDownloadTime{10};

constexpr std::int64_t kPromptTokens = 512;  // of a prompt, if max_prompt_length is not set

void print(const std::string& text) {
  fmt::print("{}{}", text, text.ends_with('\n') ? "" : "\n");
}

// The number of ranks in WORLD_SIZE. A check joins no job, so the other variables are not needed.
std::optional<std::int64_t> ranks_from_environment() {
  const char* size = getenv(rendezvous::variable::kWorldSize);
  if (size == nullptr || *size == '\0') return std::nullopt;
  const std::string_view text(size);
  std::int64_t ranks = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
  if (error != std::errc() || end != text.data() + text.size() || ranks < 1)
    throw train::UsageError(fmt::format("WORLD_SIZE={}: must be a whole number above 0", text));
  return ranks;
}

// The plan of a GRPO job: the plan of its policy, and the memory of its roles.
std::string plan_of_roles(train::PlanRequest request) {
  const train::GrpoValues values(request.config);
  const auto prompt = values.whole("max_prompt_length").value_or(kPromptTokens);
  request.config.max_length = prompt + values.whole("max_completion_length").value_or(512);
  train::RoleRequest roles{.model = request.model,
                           .config = request.config,
                           .sizes = train::plan_generation(request.config, request.ranks),
                           .roles = train::plan_roles(request.config, request.ranks),
                           .reward_models = {},
                           .gpu_bytes = request.gpu_bytes};
  const auto settings = rl::reward_settings(request.config);
  for (const auto& entry : rl::reward_names(request.config))
    if (rl::is_reward_model(entry, settings))
      roles.reward_models.push_back(rl::reward_model_memory(entry));
  roles.config.zero_stage = train::choose_zero_stage(request);
  roles.config = train::with_recomputation(
      roles.config,
      train::choose_recompute({roles.model, roles.config, request.ranks, request.gpu_bytes}));
  roles.config.offload_embedding = train::choose_offload_embedding(
      {roles.model, roles.config, request.ranks, request.gpu_bytes});
  const auto memory = role_memory(roles);
  auto text =
      train::plan_text(request) +
      fmt::format(
          "\nMemory by role, for prompts of {} tokens{}:\n\n{}", prompt,
          values.is_set("max_prompt_length") ? "" : " (set max_prompt_length to change this)",
          role_table(memory));
  if (const auto lack = memory_error(roles, memory)) text += fmt::format("\n{}\n", *lack);
  return text;
}

// What the command line does not state is looked up, which takes a while on a machine with GPUs.
VisibleGpus gpus_of(const train::PlanCommand& command) {
  if (command.gpu_bytes && command.gpus)
    return {.count = static_cast<int>(*command.gpus), .memory = *command.gpu_bytes};
  auto gpus = look_up_gpus();
  if (command.gpu_bytes) gpus.memory = *command.gpu_bytes;
  if (gpus.count > 0 && gpus.memory == 0)
    throw train::UsageError(
        "the driver does not report the memory of the GPU; give it, such as --gpu-memory 80GB");
  if (gpus.memory == 0)
    throw train::UsageError("no GPU is visible; give its memory, such as --gpu-memory 80GB");
  return gpus;
}

// Of a model whose config.json could not be had.
void check_model_name(const std::string& model) {
  const auto kind = unsupported_by_name(model);
  if (!kind.empty())
    throw train::RecipeError({fmt::format(
        "model_name_or_path: {} is not supported: by its name it is {}, and its config.json could "
        "not be had to make sure; supported are the architectures of Qwen2, Qwen3, Llama and "
        "Mistral",
        model, kind)});
}

// The recipe. If it has mistakes and is for a model that seems not to be supported, nobody has to
// correct them: that alone is reported.
train::TrainConfig read_to_check(const train::RecipeArguments& recipe) {
  try {
    return read(recipe);
  } catch (const train::RecipeError&) {
    if (recipe.path.empty()) throw;
    train::TrainConfig config;
    config.model_name_or_path = train::named_model(recipe.path);
    if (names_model(config) && settings_folder(config).empty())
      check_model_name(config.model_name_or_path);
    throw;
  }
}

void write_recipe(const std::string& path, const std::string& text) {
  if (std::filesystem::exists(path))
    throw train::UsageError(path + " already exists; give another name");
  const auto folder = std::filesystem::path(path).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder))
    throw train::UsageError(
        fmt::format("cannot write {}: there is no folder {}", path, folder.string()));
  if (::access(folder.empty() ? "." : folder.c_str(), W_OK | X_OK) != 0)
    throw std::runtime_error(
        fmt::format("cannot write {}: {}; give the name of a file in another "
                    "folder",
                    path, rendezvous::error_text(errno)));
  checkpoint::write_file(path, text);
}

// Plans for a model of which there is no file: suggests a recipe, and shows its plan.
int suggest_recipe(const train::PlanCommand& command, const VisibleGpus& gpus) {
  const auto suggestion =
      train::suggest(train::known_model(command.model_size),
                     command.gpus.value_or(std::max(1, gpus.count)), gpus.memory);
  if (command.output.empty()) {
    print(train::plan_text(suggestion.plan) + "\nA recipe that fits (--write FILE writes it):\n\n" +
          suggestion.recipe);
    return 0;
  }
  write_recipe(command.output, suggestion.recipe);
  print(train::plan_text(suggestion.plan) +
        fmt::format("\nwrote {}; edit it, then run: mgpu-run {}", command.output, command.output));
  return 0;
}

}  // namespace

int check(const train::CheckCommand& command) {
  auto config = read_to_check(command.recipe);
  const auto ranks = command.ranks ? command.ranks : ranks_from_environment();
  const auto intended = ranks.value_or(train::intended_ranks(config));
  auto local = config;
  auto missing = download_settings(local, kDownloadTime);
  for (auto& line : missing_folders(local)) missing.push_back(std::move(line));
  validate(local, intended);
  if (const auto folder = settings_folder(config); !folder.empty())
    check_model(local, folder);
  else if (names_model(config))
    check_model_name(config.model_name_or_path);
  else if (std::error_code ignored;
           std::filesystem::is_directory(config.model_name_or_path, ignored))
    check_model(local, config.model_name_or_path);
  for (const auto& line : missing) config.notes.push_back("not checked: " + line);
  const char* rank = getenv(rendezvous::variable::kRank);
  if (rank == nullptr && train::has_launch_section(command.recipe))  // else mgpu-run has read it
    config.notes.push_back("not checked: launch:, the options of mgpu-run; mgpu-run " +
                           command.recipe.path + " --check checks them too");
  const std::string name = command.recipe.path.empty() ? "--set" : command.recipe.path;
  const auto text = train::check_text(config, name, intended);
  if (rank == nullptr || std::string_view(rank) == "0") print(rendezvous::printable_output(text));
  return 0;
}

int plan(const train::PlanCommand& command) {
  const auto gpus = gpus_of(command);
  if (command.recipe == train::RecipeArguments()) return suggest_recipe(command, gpus);
  train::PlanRequest request;
  request.config = read(command.recipe);
  const auto missing = download_settings(request.config, kDownloadTime);
  if (command.model_size.empty() && !missing.empty() && names_model(request.config) &&
      settings_folder(request.config).empty())
    throw std::runtime_error(missing.front());
  request.model = command.model_size.empty() ? train::open_model_config(request.config)
                                             : train::known_model(command.model_size).config;
  request.gpu_bytes = gpus.memory;
  if (request.model.nf4 && request.config.use_peft && !request.config.load_in_8bit &&
      request.config.fp8 == train::Fp8::none)
    request.config.load_in_4bit = true;
  // The GPUs of roles may be more than those of ranks.
  const auto ranks = train::required_ranks(request.config);
  request.gpus = command.gpus.value_or(ranks ? count_gpus(train::plan_roles(request.config, *ranks))
                                             : std::max(1, gpus.count));
  request.ranks = ranks.value_or(request.gpus);
  if (request.config.task == train::Task::grpo) {
    if (command.gpus) check_gpus(train::plan_roles(request.config, request.ranks), *command.gpus);
    print(plan_of_roles(request));
  } else {
    print(train::plan_text(request));
  }
  return 0;
}

int init(const train::InitCommand& command) {
  const auto text = train::template_text(command.kind);
  if (command.output.empty()) {
    print(text);
    return 0;
  }
  write_recipe(command.output, text);
  print(fmt::format("wrote {}; edit it, then run: mgpu-run {}", command.output, command.output));
  return 0;
}

}  // namespace mgpu::recipes
