#include "launcher/options/help.hpp"

#include <string_view>

#include <fmt/format.h>

#include "launcher/options/option_table.hpp"

namespace mgpu::launcher {
namespace {

constexpr std::size_t kHelpColumn = 33;
constexpr std::size_t kWidth = 92;

constexpr const char* kHead =
    R"(Run one copy of TARGET per GPU, watch over all of them, and leave nothing behind.

Usage: mgpu-run [options] [--] TARGET [ARGS...]
       mgpu-run devices [--json]             list the GPUs of this node
       mgpu-run doctor [--port N] [--json]   check it: driver, GPUs, libraries, network, disks

TARGET is a recipe (.yaml), a Python script, with -m a Python module, or a program.
)";

constexpr const char* kTail = R"(
Every option may be written with underscores and shortened while it stays unique, and may also
be given as MGPU_<OPTION>, as torchrun's PET_<OPTION>, or in the recipe under launch:, the
command line first.

Exit status: 0 all ranks ended well; that of the first rank to fail in the last attempt, or
128+N if signal N killed it; 128+N when told to stop by signal N; 2 for a mistake on the command
line; 1 if mgpu-run itself failed; 75 if nodes could not meet or stay together.
See docs/launcher.md.
)";

std::string_view title(OptionGroup group) {
  switch (group) {
    case OptionGroup::program:
      return "What is run";
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

std::string small_print() {
  std::string text, line = "Also, as torchrun has them:";
  for (const auto& spec : option_table()) {
    if (!spec.help.empty() || spec.internal) continue;
    const auto word = " --" + spec.name();
    if (line.size() + word.size() > kWidth) {
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
  return text + "\n" + small_print() + kTail;
}

std::string version_text() {
  return "mgpu-run " MGPU_VERSION "\n";
}

std::string version_number() {
  return MGPU_VERSION;
}

}  // namespace mgpu::launcher
