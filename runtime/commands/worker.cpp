#include <fmt/format.h>
#include <stdlib.h>

#include <cstdio>
#include <optional>
#include <variant>

#include "rendezvous/base/printable.hpp"
#include "rendezvous/contract.hpp"
#include "runtime/checkpoint/file.hpp"
#include "runtime/checkpoint/folder_lock.hpp"
#include "runtime/commands/commands.hpp"
#include "runtime/commands/grpo.hpp"
#include "runtime/commands/hub_names.hpp"
#include "runtime/commands/report_errors.hpp"
#include "runtime/commands/sft.hpp"
#include "runtime/commands/validation.hpp"
#include "runtime/config/launch_command.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/train/device.hpp"
#include "runtime/train/launcher_link.hpp"
#include "runtime/train/start_anew.hpp"

namespace {

using namespace mgpu;

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

// For rank 0, which reads and writes checkpoints and logs for all ranks.
void lock_output_dir(std::optional<checkpoint::FolderLock>& lock, const train::TrainConfig& config,
                     const rendezvous::Contract& contract) {
  if (contract.rank != 0) return;
  checkpoint::make_writable_folder(config.output_dir);
  const char* const cookie = getenv(rendezvous::variable::kJobCookie);
  try {
    lock.emplace(config.output_dir,
                 checkpoint::LockingJob{.cookie = cookie == nullptr ? "" : cookie,
                                        .run_id = contract.run_id,
                                        .is_restart = contract.restart_count > 0 ||
                                                      contract.replacement.value_or(0) > 0});
  } catch (const checkpoint::FolderInUse& e) {
    train::throw_recipe_error(fmt::format("output_dir: {}", e.what()));
  }
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
  recipes::require_folders(config);
  if (contract.rank == 0) {
    for (const auto& note : config.notes) fmt::print("note: {}\n", rendezvous::printable(note));
    std::fflush(stdout);
  }
  recipes::download_named(config, contract);
  std::optional<checkpoint::FolderLock> lock;
  lock_output_dir(lock, config, contract);
  if (contract.replacement.value_or(0) == 0) train::decide_start(config, contract);
  const int status = config.task == train::Task::grpo ? recipes::grpo(config, contract)
                                                      : recipes::sft(config, contract);
  if (status == 0 && config.push_to_hub && contract.rank == 0) recipes::push_to_hub(config);
  return status;
}

int tokenize(const train::TokenizeCommand& command) {
  auto config = train::read_recipe(
      command.recipe.path,
      {.set = command.recipe.set, .allow_unknown = command.recipe.allow_unknown});
  recipes::require_folders(config);
  recipes::download_named(config, {});
  return recipes::tokenize(config);
}

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

// The front end runs the other commands.
int run_command(const train::Command& command) {
  return std::visit(Overloaded{
                        [](const train::RunCommand& c) { return run(c); },
                        [](const train::GenerateCommand& c) { return recipes::generate(c); },
                        [](const train::MergeCommand& c) { return recipes::merge(c); },
                        [](const train::QuantizeCommand& c) { return recipes::quantize(c); },
                        [](const train::TokenizeCommand& c) { return tokenize(c); },
                        [](const train::VersionCommand&) {
                          fmt::print("{}", train::version_text());
                          return 0;
                        },
                        [](const auto&) -> int {
                          throw train::UsageError(
                              "this is the worker, which has only the commands that compute; "
                              "run the mgpu-train on PATH");
                        },
                    },
                    command);
}

}  // namespace

int main(int argc, char** argv) {
  const int ended = recipes::report_errors([&] {
    const auto command = train::parse_command_line(argc, argv);
    const int status = run_command(command);
    // Training's results are its files; without a reader of its lines it goes on.
    if (!std::holds_alternative<train::RunCommand>(command)) recipes::finish_output();
    return status;
  });
  recipes::end_process(ended);
}
