#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

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

// Without a slash at the end, so that the draft is beside it.
fs::path folder_of(const std::string& name) {
  const auto folder = fs::path(name).lexically_normal();
  return folder.has_filename() ? folder : folder.parent_path();
}

void require_new(const fs::path& folder) {
  if (folder.empty()) throw train::UsageError("give the folder a name, such as quickstart");
  if (!fs::exists(folder)) return;
  const auto name = folder.filename().string();
  const bool named = !name.empty() && name != "." && name != "..";
  throw train::UsageError(fmt::format(
      "{} already exists; use it, or give another name, such as mgpu-train quickstart {}",
      folder.string(), named ? folder.string() + "-2" : "quickstart"));
}

}  // namespace

int quickstart(const train::QuickstartCommand& command) {
  const fs::path folder = folder_of(command.folder);
  require_new(folder);
  // The folder appears when it is complete.
  const fs::path draft = folder.string() + ".part";
  try {
    fs::remove_all(draft);
    for (const auto& file : quickstart_files()) {
      const auto path = draft / file.name;
      fs::create_directories(path.parent_path());
      checkpoint::write_file(path.string(), without_source_folder(std::string(file.text)));
    }
    fs::rename(draft, folder);
  } catch (const std::exception& e) {
    std::error_code ignored;
    fs::remove_all(draft, ignored);
    // Without the advice on checkpoints that errors of writing have.
    const auto* const failure = dynamic_cast<const std::system_error*>(&e);
    throw std::runtime_error(fmt::format("cannot create the folder {}: {}; give another one",
                                         folder.string(),
                                         failure ? failure->code().message() : e.what()));
  }
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
