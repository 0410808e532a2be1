#include "runtime/recipes/commands.hpp"

#include <fmt/format.h>
#include <stdlib.h>

#include <filesystem>
#include <stdexcept>

#include "rendezvous/contract.hpp"
#include "runtime/checkpoint/file.hpp"
#include "runtime/config/batch_arithmetic.hpp"
#include "runtime/config/check.hpp"
#include "runtime/config/planner.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/config/templates.hpp"
#include "runtime/train/device.hpp"
#include "runtime/train/model_source.hpp"

namespace mgpu::recipes {
namespace {

train::TrainConfig read(const train::RecipeArguments& recipe) {
  return train::read_recipe(recipe.path,
                            {.set = recipe.set, .allow_unknown = recipe.allow_unknown});
}

void print(const std::string& text) {
  fmt::print("{}{}", text, text.ends_with('\n') ? "" : "\n");
  std::fflush(stdout);
}

}  // namespace

int check(const train::CheckCommand& command) {
  const auto config = read(command.recipe);
  rendezvous::Contract contract;
  contract.world_size = static_cast<int>(train::ranks_meant(config));
  if (rendezvous::Contract::is_told(getenv))
    contract = rendezvous::Contract::from_environment(getenv);
  const auto ranks = command.ranks.value_or(contract.world_size);
  const auto text = train::check_text(config, command.recipe.path, ranks);
  if (contract.rank == 0) print(text);
  return 0;
}

int plan(const train::PlanCommand& command) {
  train::PlanRequest request;
  request.config = read(command.recipe);
  request.model = train::open_model(request.config).config;
  const int visible = train::visible_gpus();
  request.ranks = command.gpus.value_or(std::max(1, visible));
  if (command.gpu_bytes) {
    request.gpu_bytes = *command.gpu_bytes;
  } else if (visible > 0) {
    request.gpu_bytes = train::device_memory(train::take_device(0, true)).total;
  } else {
    throw train::UsageError("no GPU is visible; state its memory with --gpu-memory, as in 80GB");
  }
  print(train::plan_text(request));
  return 0;
}

int init(const train::InitCommand& command) {
  const auto text = train::template_text(command.kind);
  if (command.output.empty()) {
    print(text);
    return 0;
  }
  if (std::filesystem::exists(command.output)) {
    throw std::runtime_error(command.output + " exists already; give another name with -o");
  }
  checkpoint::write_file(command.output, text);
  print(
      fmt::format("wrote {}; look through it, then: mgpu-run {}", command.output, command.output));
  return 0;
}

}  // namespace mgpu::recipes
