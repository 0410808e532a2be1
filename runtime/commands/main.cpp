#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <thread>
#include <variant>

#include "rendezvous/base/exit_status.hpp"
#include "rendezvous/contract.hpp"
#include "runtime/commands/commands.hpp"
#include "runtime/commands/grpo.hpp"
#include "runtime/commands/hub_names.hpp"
#include "runtime/commands/sft.hpp"
#include "runtime/commands/validation.hpp"
#include "runtime/config/keys/reference_page.hpp"
#include "runtime/config/launch_command.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/train/device.hpp"
#include "runtime/train/failure_report.hpp"
#include "runtime/train/launcher_link.hpp"

namespace {

using namespace mgpu;

// Every rank finds the same error in a recipe. The other ranks wait so that only rank 0 reports it:
// the launcher then stops them. If nobody stops them they report it too, because only their
// machine's file may be wrong.
void let_rank_0_report_first() {
  const char* rank = getenv(rendezvous::variable::kRank);
  if (rank != nullptr && *rank != '\0' && std::string_view(rank) != "0")
    std::this_thread::sleep_for(std::chrono::seconds(5));
}

// One process uses one GPU: refuses a recipe for several ranks, and machines with several GPUs.
void require_launcher(const train::RunCommand& command) {
  const auto ranks = train::ranks_of_recipe(command.recipe).value_or(1);
  if (ranks > 1)
    throw train::UsageError(
        fmt::format("the recipe is for {} ranks, but this process has no launcher; run {} or "
                    "add --single to train with one rank",
                    ranks, train::launch_command(command, ranks)));
  if (const int gpus = train::visible_gpus(); gpus > 1)
    throw train::UsageError(fmt::format(
        "{} GPUs are visible, but one process uses only one of them; run {} to use all, "
        "or add --single to use one",
        gpus, train::launch_command(command, gpus)));
}

int run(const train::RunCommand& command) {
  auto config = train::read_recipe(
      command.recipe.path,
      {.set = command.recipe.set, .allow_unknown = command.recipe.allow_unknown});
  rendezvous::Contract contract;
  if (rendezvous::Contract::is_present(getenv)) {
    contract = rendezvous::Contract::from_environment(getenv);
    train::obey_launcher(contract);
  } else if (!command.single) {
    require_launcher(command);
  }
  recipes::validate(config, contract.world_size);
  if (contract.rank == 0) {
    for (const auto& note : config.notes) fmt::print("note: {}\n", note);
    std::fflush(stdout);
  }
  recipes::download_named(config, contract);
  if (config.task == train::Task::grpo) return recipes::grpo(config, contract);
  return recipes::sft(config, contract);
}

int tokenize(const train::TokenizeCommand& command) {
  auto config = train::read_recipe(
      command.recipe.path,
      {.set = command.recipe.set, .allow_unknown = command.recipe.allow_unknown});
  recipes::download_named(config, {});
  return recipes::tokenize(config);
}

int print(const std::string& text) {
  fmt::print("{}{}", text, text.ends_with('\n') ? "" : "\n");
  return 0;
}

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

int run_command(const train::Command& command) {
  return std::visit(
      Overloaded{
          [](const train::RunCommand& c) { return run(c); },
          [](const train::CheckCommand& c) { return recipes::check(c); },
          [](const train::PlanCommand& c) { return recipes::plan(c); },
          [](const train::InitCommand& c) { return recipes::init(c); },
          [](const train::GenerateCommand& c) { return recipes::generate(c); },
          [](const train::MergeCommand& c) { return recipes::merge(c); },
          [](const train::QuantizeCommand& c) { return recipes::quantize(c); },
          [](const train::ScoreCommand& c) { return recipes::score(c); },
          [](const train::TokenizeCommand& c) { return tokenize(c); },
          [](const train::TrainTokenizerCommand& c) { return recipes::train_tokenizer(c); },
          [](const train::KeysCommand&) { return print(train::keys_markdown()); },
          [](const train::VersionCommand&) { return print(train::version_text()); },
          [](const train::HelpCommand&) { return print(train::help_text()); },
      },
      command);
}

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGXFSZ, SIG_IGN);  // so that a write beyond a file size limit fails with a message
  try {
    return run_command(train::parse_command_line(argc, argv));
  } catch (const train::UsageError& e) {
    let_rank_0_report_first();
    fprintf(stderr, "mgpu-train: %s\n", e.what());
    return exit_status::kUsage;
  } catch (const train::RecipeError& e) {
    let_rank_0_report_first();
    for (const auto& line : e.lines()) fprintf(stderr, "mgpu-train: %s\n", line.c_str());
    // No destructors: threads may be opening the GPU or connecting to other ranks.
    std::fflush(nullptr);
    _Exit(exit_status::kUsage);
  } catch (const std::exception& e) {
    train::fail(e.what());
  }
}
