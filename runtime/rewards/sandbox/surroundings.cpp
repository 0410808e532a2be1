#include "runtime/rewards/sandbox/surroundings.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <string_view>

#include "runtime/rewards/sandbox.hpp"

namespace mgpu::rewards {
namespace {

namespace fs = std::filesystem;

constexpr std::array kHiddenFolders = {"/tmp", "/dev/shm"};

constexpr std::array<std::string_view, 19> kAllowedNames = {
    "PATH",    "HOME",         "USER",           "LOGNAME",
    "SHELL",   "LANG",         "LANGUAGE",       "TZ",
    "TERM",    "VIRTUAL_ENV",  "CONDA_PREFIX",   "LD_LIBRARY_PATH",
    "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE",
    "RANK",    "LOCAL_RANK",   "WORLD_SIZE"};

bool is_allowed(std::string_view name) {
  return std::find(kAllowedNames.begin(), kAllowedNames.end(), name) != kAllowedNames.end() ||
         name.starts_with("LC_") || name.starts_with("PYTHON") || name.ends_with("_NUM_THREADS");
}

std::vector<std::string> entries_of(const char* list) {
  std::vector<std::string> entries;
  std::istringstream words(list ? list : "");
  for (std::string word; std::getline(words, word, ':');)
    if (!word.empty()) entries.push_back(word);
  return entries;
}

bool lies_in_hidden_folder(const fs::path& path) {
  for (const fs::path folder : kHiddenFolders)
    for (const auto& hidden : {folder, fs::weakly_canonical(folder)}) {
      const auto inside = path.lexically_relative(hidden);
      if (!inside.empty() && inside != "." && *inside.begin() != "..") return true;
    }
  return false;
}

// The folder of a program, and the one above it if that is `bin`: it has the libraries, too.
void add_folders_of(const fs::path& program, std::vector<std::string>& folders) {
  const auto folder = program.parent_path();
  folders.push_back(folder);
  if (folder.filename() == "bin") folders.push_back(folder.parent_path());
}

// The words of a shell command that are paths, and the program if it is found in PATH.
std::vector<fs::path> files_named_by(const std::string& command) {
  std::vector<fs::path> files;
  std::istringstream words(command);
  for (std::string word; words >> word;) {
    std::erase_if(word, [](char c) { return c == '"' || c == '\''; });
    if (word.find('/') != word.npos) {
      files.emplace_back(word);
    } else if (files.empty()) {
      for (const auto& folder : entries_of(std::getenv("PATH"))) {
        std::error_code ignored;
        if (!fs::exists(fs::path(folder) / word, ignored)) continue;
        files.push_back(fs::path(folder) / word);
        break;
      }
    }
  }
  return files;
}

}  // namespace

std::vector<std::string> sandbox_environment() {
  std::vector<std::string> allowed;
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view text(*variable);
    if (is_allowed(text.substr(0, text.find('=')))) allowed.emplace_back(text);
  }
  return allowed;
}

std::vector<std::string> program_paths(const std::string& command) {
  std::vector<std::string> paths;
  for (const auto* name :
       {"PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH"})
    for (auto& entry : entries_of(std::getenv(name))) paths.push_back(std::move(entry));
  for (const auto& file : files_named_by(command)) {
    paths.push_back(file);
    add_folders_of(file, paths);  // of an environment, which may only link to the program
    std::error_code missing;
    add_folders_of(fs::canonical(file, missing), paths);
  }
  return paths;
}

std::vector<std::string> in_hidden_folders(const std::vector<std::string>& paths) {
  std::set<std::string> found;
  for (const auto& path : paths) {
    if (path.empty()) continue;
    std::error_code missing;
    auto named = fs::absolute(path).lexically_normal();
    if (!named.has_filename()) named = named.parent_path();  // a slash at its end
    const auto real = fs::canonical(named, missing);
    if (missing) continue;
    for (const auto& one : {named, real})
      if (lies_in_hidden_folder(one)) found.insert(one.string());
  }
  // Nothing below another one: it is visible already.
  std::vector<std::string> least;
  for (const auto& path : found)
    if (least.empty() || !path.starts_with(least.back() + "/")) least.push_back(path);
  return least;
}

}  // namespace mgpu::rewards
