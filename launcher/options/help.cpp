#include "launcher/options/help.hpp"

#include <string_view>

#include <fmt/format.h>

#include "launcher/options/option_table.hpp"

namespace mgpu::launcher {
namespace {

constexpr std::size_t kHelpColumn = 33;
constexpr std::size_t kHelpWidth = 100;

constexpr const char* kHead =
    R"(Start one process per GPU, supervise all of them, and leave no orphan processes.

Usage: mgpu-run [options] [--] TARGET [ARGS...]   run a job
       mgpu-run status [JOB] [--json]             show the status of a job
       mgpu-run devices [--json]                  list the GPUs of this node
       mgpu-run doctor [--port N] [--json]        check driver, GPUs, libraries, network, disks

TARGET is a recipe (.yaml), a Python script, a Python module (with -m) or a program.
)";

constexpr const char* kTail = R"(
Option names accept underscores and any unique abbreviation. The command line overrides variables,
MGPU_<OPTION> and (torchrun) PET_<OPTION>, and these override launch: in the recipe.

Exit status: 0 if every rank succeeded; else that of the first rank to fail in the last attempt;
128+N after signal N; 2: usage error; 1: mgpu-run failed; 75: too few nodes. See docs/launcher.md.
)";

std::string_view title(OptionGroup group) {
  switch (group) {
    case OptionGroup::program:
      return "Target";
    case OptionGroup::ranks:
      return "Ranks";
    case OptionGroup::nodes:
      return "Nodes";
    case OptionGroup::supervision:
      return "Supervision";
    case OptionGroup::output:
      return "Output";
    case OptionGroup::other:
      return "Other";
  }
  return "";
}

std::string line_of(const OptionSpec& spec) {
  auto left = spec.letter ? fmt::format("  -{}, --{}", spec.letter, spec.name())
                          : fmt::format("      --{}", spec.name());
  if (!spec.is_flag()) left += " " + spec.value;
  return fmt::format("{:<{}}{}\n", left, kHelpColumn, spec.help);
}

std::string torchrun_options() {
  std::string text, line = "torchrun options also accepted:";
  for (const auto& spec : option_table()) {
    if (!spec.help.empty() || spec.internal) continue;
    const auto word = " --" + spec.name();
    if (line.size() + word.size() > kHelpWidth) {
      text += line + "\n";
      line = " ";
    }
    line += word;
  }
  return text + line + "\n";
}

}  // namespace

std::string help_text() {
  std::string text = kHead;
  auto group = OptionGroup::other;
  for (const auto& spec : option_table()) {
    if (spec.help.empty()) continue;
    if (spec.group != group || &spec == &option_table().front())
      text += fmt::format("\n{}:\n", title(spec.group));
    group = spec.group;
    text += line_of(spec);
  }
  return text + "\n" + torchrun_options() + kTail;
}

std::string version_text() {
  return "mgpu-run " MGPU_VERSION "\n";
}

std::string version_number() {
  return MGPU_VERSION;
}

}  // namespace mgpu::launcher
