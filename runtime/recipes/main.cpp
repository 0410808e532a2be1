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

#include "rendezvous/contract.hpp"
#include "runtime/config/keys/reference_page.hpp"
#include "runtime/config/planning/batch_arithmetic.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/recipes/commands.hpp"
#include "runtime/recipes/grpo.hpp"
#include "runtime/recipes/sft.hpp"
#include "runtime/train/device.hpp"
#include "runtime/train/failure_report.hpp"

namespace {

using namespace mgpu;

// What is wrong with a recipe every rank sees. Rank 0 tells it, which ends the others before they
// would; where nobody ends them they tell it too, for it may be their machine's file that is wrong.
void let_rank_0_speak() {
  const char* rank = getenv(rendezvous::variable::kRank);
  if (rank != nullptr && *rank != '\0' && std::string_view(rank) != "0")
    std::this_thread::sleep_for(std::chrono::seconds(5));
}

int run(const train::RunCommand& command) {
  const auto config = train::read_recipe(
      command.recipe.path,
      {.set = command.recipe.set, .allow_unknown = command.recipe.allow_unknown});
  rendezvous::Contract contract;
  if (rendezvous::Contract::is_present(getenv)) {
    contract = rendezvous::Contract::from_environment(getenv);
  } else if (const int gpus = train::visible_gpus(); gpus > 1 && !command.single) {
    throw train::UsageError(
        fmt::format("{} GPUs are visible and one process uses one of them. Start it on all with\n"
                    "    mgpu-run --nproc {} {}\nor go on with one GPU with --single",
                    gpus, gpus, command.recipe.path));
  }
  train::check_ranks(config, contract.world_size);
  if (contract.rank == 0) {
    for (const auto& note : config.notes) fmt::print("note: {}\n", note);
    std::fflush(stdout);
  }
  if (config.task == train::Task::grpo) return recipes::grpo(config, contract);
  return recipes::sft(config, contract);
}

int tokenize(const train::TokenizeCommand& command) {
  const auto config = train::read_recipe(
      command.recipe.path,
      {.set = command.recipe.set, .allow_unknown = command.recipe.allow_unknown});
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

int carry_out(const train::Command& command) {
  return std::visit(Overloaded{
                        [](const train::RunCommand& c) { return run(c); },
                        [](const train::CheckCommand& c) { return recipes::check(c); },
                        [](const train::PlanCommand& c) { return recipes::plan(c); },
                        [](const train::InitCommand& c) { return recipes::init(c); },
                        [](const train::GenerateCommand& c) { return recipes::generate(c); },
                        [](const train::MergeCommand& c) { return recipes::merge(c); },
                        [](const train::QuantizeCommand& c) { return recipes::quantize(c); },
                        [](const train::ScoreCommand& c) { return recipes::score(c); },
                        [](const train::TokenizeCommand& c) { return tokenize(c); },
                        [](const train::KeysCommand&) { return print(train::keys_markdown()); },
                        [](const train::VersionCommand&) { return print(train::version_text()); },
                        [](const train::HelpCommand&) { return print(train::help_text()); },
                    },
                    command);
}

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGXFSZ, SIG_IGN);  // a write beyond a limit fails with a message instead
  try {
    return carry_out(train::parse_command_line(argc, argv));
  } catch (const train::UsageError& e) {
    let_rank_0_speak();
    fprintf(stderr, "mgpu-train: %s\n", e.what());
    return 2;
  } catch (const train::RecipeError& e) {
    let_rank_0_speak();
    for (const auto& line : e.lines()) fprintf(stderr, "mgpu-train: %s\n", line.c_str());
    return 2;
  } catch (const std::exception& e) {
    // LibTorch puts a stack trace of its own behind the message.
    const std::string text = e.what();
    train::write_failure_report(text.substr(0, text.find("\nException raised from")));
    // Other ranks' connections are torn on purpose: they must not wait for us.
    std::fflush(nullptr);
    _Exit(1);
  }
}
