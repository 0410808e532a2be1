#include "runtime/recipes/commands.hpp"

#include <fmt/format.h>
#include <stdlib.h>

#include <charconv>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string_view>

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

// Nothing is joined for a check: WORLD_SIZE alone will do.
std::optional<std::int64_t> ranks_told() {
  const char* size = getenv(rendezvous::variable::kWorldSize);
  if (size == nullptr || *size == '\0') return std::nullopt;
  const std::string_view text(size);
  std::int64_t ranks = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
  if (error != std::errc() || end != text.data() + text.size() || ranks < 1)
    throw train::UsageError(fmt::format("WORLD_SIZE={}: must be a whole number above 0", text));
  return ranks;
}

}  // namespace

int check(const train::CheckCommand& command) {
  const auto config = read(command.recipe);
  const auto ranks = command.ranks ? command.ranks : ranks_told();
  const auto text =
      train::check_text(config, command.recipe.path, ranks.value_or(train::ranks_meant(config)));
  const char* rank = getenv(rendezvous::variable::kRank);
  if (rank == nullptr || std::string_view(rank) == "0") print(text);
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
