#include "runtime/commands/needed_torch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

#include "rendezvous/base/small_file.hpp"
#include "rendezvous/base/untrusted_json.hpp"

namespace mgpu::recipes {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestVersionFile = 1 << 16;

// The part of a version before its last dot: "2.11" of "2.11.0+cu130".
std::string release_of(std::string_view version) {
  version = version.substr(0, version.find('+'));
  const auto dot = version.find('.');
  return std::string(version.substr(0, version.find('.', dot == version.npos ? dot : dot + 1)));
}

std::string major_of(std::string_view version) {
  return std::string(version.substr(0, version.find('.')));
}

// The quoted text after a beginning such as "cuda" in a line: cuda: Optional[str] = '13.0'.
std::string quoted_in_line(std::string_view text, std::string_view beginning) {
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (!line.starts_with(beginning)) continue;
    const auto open = line.find_first_of("'\"");
    if (open == line.npos) return {};
    const auto close = line.find(line[open], open + 1);
    if (close != line.npos) return std::string(line.substr(open + 1, close - open - 1));
  }
  return {};
}

}  // namespace

NeededTorch read_needed_torch(const std::string& json) {
  const auto build = rendezvous::parse_untrusted_json(json);
  const auto text = [&](const char* key) -> std::string {
    if (!build.is_object() || !build.contains(key) || !build[key].is_string())
      throw std::runtime_error("build.json is damaged; install mgpu-train again");
    return build[key];
  };
  return {.torch = text("torch"), .cuda = text("cuda")};
}

namespace {

// Without them the loader would take the libraries that stand in for them, which are for a torch
// without CUDA.
std::string missing_library(const std::string& torch_folder, const std::string& cuda) {
  if (cuda.empty()) return {};
  const auto packages = fs::path(torch_folder).parent_path() / "nvidia";
  for (const auto& name : {"libcudart.so." + major_of(cuda), std::string("libnccl.so.2")}) {
    std::error_code missing;
    bool found = false;
    for (const auto& package : fs::directory_iterator(packages, missing)) {
      std::error_code ignored;
      found = found || fs::exists(package.path() / "lib" / name, ignored);
    }
    if (!found) return name;
  }
  return {};
}

}  // namespace

std::optional<TorchPackage> read_torch_package(const std::string& folder) {
  const auto file = rendezvous::read_small_file(folder + "/version.py", kLongestVersionFile);
  if (!file.complete()) return std::nullopt;
  TorchPackage package{.folder = folder,
                       .version = quoted_in_line(file.text, "__version__"),
                       .cuda = quoted_in_line(file.text, "cuda"),
                       .missing = {}};
  package.missing = missing_library(folder, package.cuda);
  return package;
}

std::string torch_problem(const NeededTorch& needed, const std::optional<TorchPackage>& found,
                          bool gpus, std::string_view python) {
  const auto release = release_of(needed.torch);
  const auto install = fmt::format("{} -m pip install 'torch=={}.*'", python, release);
  if (!found) return fmt::format("torch {} is missing; run {}", release, install);
  if (release_of(found->version) != release)
    return fmt::format(
        "this mgpu-train needs torch {}, but {} has {}; run {}, or build mgpu-train from source "
        "for "
        "torch {}: scripts/build.sh --torch={}",
        release, found->folder, found->version, install, release_of(found->version),
        found->version.substr(0, found->version.find('+')));
  if (found->cuda.empty() && gpus)
    return fmt::format(
        "{} has torch {}, a build without CUDA, so the GPUs of this machine would be idle; run {} "
        "--force-reinstall, or set CUDA_VISIBLE_DEVICES= to compute on CPUs",
        found->folder, found->version, install);
  if (!found->cuda.empty() && major_of(found->cuda) != major_of(needed.cuda))
    return fmt::format(
        "this mgpu-train needs torch for CUDA {}, but {} has {} for CUDA {}; run {} "
        "--force-reinstall, or build mgpu-train from source for this torch",
        major_of(needed.cuda), found->folder, found->version, found->cuda, install);
  if (!found->missing.empty())
    return fmt::format(
        "{} has no {} in the packages of NVIDIA beside it, which pip installs with torch; run {} "
        "--force-reinstall, or build mgpu-train from source for this torch",
        found->folder, found->missing, install);
  return {};
}

}  // namespace mgpu::recipes
