#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>
#include <string>

#include "runtime/checkpoint/file.hpp"
#include "runtime/commands/commands.hpp"
#include "runtime/commands/quickstart_files.hpp"
#include "runtime/commands/visible_gpus.hpp"

namespace mgpu::recipes {
namespace {

namespace fs = std::filesystem;

// In the source tree, examples run from its root.
std::string without_source_folder(std::string text) {
  constexpr std::string_view kFolder = "docs/examples/";
  for (std::size_t at = 0; (at = text.find(kFolder, at)) != std::string::npos;)
    text.erase(at, kFolder.size());
  return text;
}

}  // namespace

int quickstart(const train::QuickstartCommand& command) {
  const fs::path folder = command.folder;
  if (fs::exists(folder))
    throw std::runtime_error(
        fmt::format("{0} already exists; give another name, such as mgpu-train quickstart {0}-2",
                    folder.string()));
  // The folder appears when it is complete.
  const fs::path draft = folder.string() + ".part";
  fs::remove_all(draft);
  for (const auto& file : quickstart_files()) {
    const auto path = draft / file.name;
    fs::create_directories(path.parent_path());
    checkpoint::write_file(path.string(), without_source_folder(std::string(file.text)));
  }
  fs::rename(draft, folder);
  const int ranks = look_up_gpus().count == 1 ? 1 : 2;
  fmt::print(
      "wrote {0}: two recipes, their data and a tokenizer. Next:\n\n"
      "  cd {0}\n"
      "  mgpu-run --nproc {1} quickstart.yaml    # learns to add, in a minute or two on two CPU "
      "cores\n"
      "  mgpu-train generate --model output/quickstart --prompt \"117+845= 7+5=\"\n"
      "  mgpu-run --nproc {1} grpo.yaml          # improves the model with rewards\n"
      "  mgpu-train generate --model output/grpo --prompt \"117+845=\"\n",
      folder.string(), ranks);
  return 0;
}

}  // namespace mgpu::recipes
