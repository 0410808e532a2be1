// mgpu-train: everything that needs no tensor. It executes the worker for the rest, so that help,
// check and plan take milliseconds and work without LibTorch.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <variant>

#include "runtime/commands/commands.hpp"
#include "runtime/commands/report_errors.hpp"
#include "runtime/commands/start_worker.hpp"
#include "runtime/config/keys/reference_page.hpp"

namespace {

using namespace mgpu;

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

int run_command(const train::Command& command, char** argv) {
  return std::visit(
      Overloaded{
          [](const train::CheckCommand& c) { return recipes::check(c); },
          [](const train::PlanCommand& c) { return recipes::plan(c); },
          [](const train::InitCommand& c) { return recipes::init(c); },
          [](const train::QuickstartCommand& c) { return recipes::quickstart(c); },
          [](const train::DataCommand& c) { return recipes::view_data(c); },
          [](const train::ScoreCommand& c) { return recipes::score(c); },
          [](const train::TrainTokenizerCommand& c) { return recipes::train_tokenizer(c); },
          [](const train::KeysCommand&) { return print(train::keys_markdown()); },
          [&](const train::VersionCommand& c) -> int {
            if (c.worker) recipes::start_worker(argv);
            return print(train::version_text());
          },
          [](const train::HelpCommand&) { return print(train::help_text()); },
          [&](const auto&) -> int { recipes::start_worker(argv); },
      },
      command);
}

}  // namespace

int main(int argc, char** argv) {
  return recipes::report_errors([&] {
    const int status = run_command(train::parse_command_line(argc, argv), argv);
    recipes::finish_output();
    return status;
  });
}
