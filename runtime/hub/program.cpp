#include "runtime/hub/program.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <string_view>

#include "runtime/checkpoint/hub_cache.hpp"

namespace mgpu::hub {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* const value = ::getenv(name);
  return value ? value : "";
}

bool is_executable(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

std::string find(const std::string& name) {
  const auto path = variable("PATH");
  for (std::size_t begin = 0; begin <= path.size();) {
    const auto end = std::min(path.find(':', begin), path.size());
    const fs::path candidate = fs::path(path.substr(begin, end - begin)) / name;
    if (candidate.is_absolute() && is_executable(candidate)) return candidate.string();
    begin = end + 1;
  }
  // A virtual environment need not be activated to start a program in it.
  std::error_code none;
  const auto beside = fs::read_symlink("/proc/self/exe", none).parent_path() / name;
  return is_executable(beside) ? beside.string() : "";
}

bool is_true(std::string value) {
  std::ranges::transform(value, value.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

// Ours with these changes.
std::vector<std::string> environment_with(const std::vector<std::string>& changes) {
  auto all = changes;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto name = text.substr(0, text.find('=') + 1);
    if (std::ranges::none_of(changes, [&](const auto& change) { return change.starts_with(name); }))
      all.emplace_back(text);
  }
  return all;
}

Program hf_program(Program program, const Repository& repository) {
  program.argv.insert(program.argv.end(), {"download", repository.name});
  for (auto& pattern : patterns(repository.part)) program.argv.push_back(std::move(pattern));
  if (repository.is_dataset()) {
    program.argv.emplace_back("--repo-type");
    program.argv.emplace_back("dataset");
  }
  program.argv.emplace_back("--revision");
  program.argv.push_back(repository.revision);
  return program;
}

Program modelscope_program(const std::string& path, const Repository& repository) {
  Program program{.argv = {path, "download", repository.is_dataset() ? "--dataset" : "--model",
                           repository.name, "--include"},
                  .environment = environment_with({"NO_COLOR=1"})};
  for (auto& pattern : patterns(repository.part)) program.argv.push_back(std::move(pattern));
  if (repository.revision != "main") {
    program.argv.emplace_back("--revision");
    program.argv.push_back(repository.revision);
  }
  return program;
}

}  // namespace

std::optional<Program> find_program(const Repository& repository) {
  if (repository.site == Site::modelscope) {
    const auto path = find("modelscope");
    return path.empty() ? std::nullopt : std::optional(modelscope_program(path, repository));
  }
  auto program = find_hf();
  return program ? std::optional(hf_program(std::move(*program), repository)) : std::nullopt;
}

std::optional<Program> find_hf() {
  for (const char* name : {"hf", "huggingface-cli"}) {
    const auto path = find(name);
    if (path.empty()) continue;
    // The progress that we print counts the bytes of all files.
    return Program{{path},
                   environment_with({"HF_HUB_CACHE=" + checkpoint::hub_cache(),
                                     "HF_HUB_DISABLE_PROGRESS_BARS=1",
                                     "HF_HUB_DISABLE_UPDATE_CHECK=1", "NO_COLOR=1"})};
  }
  return std::nullopt;
}

std::string install_command(Site site) {
  return site == Site::modelscope ? "pip install modelscope" : "pip install huggingface_hub";
}

std::string program_name(Site site) {
  return site == Site::modelscope ? "modelscope" : "hf";
}

std::string cache_variable(Site site) {
  return site == Site::modelscope ? "MODELSCOPE_CACHE" : "HF_HOME";
}

std::string endpoint(Site site) {
  const bool modelscope = site == Site::modelscope;
  const auto chosen = variable(modelscope ? "MODELSCOPE_ENDPOINT" : "HF_ENDPOINT");
  if (!chosen.empty()) return chosen;
  return modelscope ? "https://modelscope.cn" : "https://huggingface.co";
}

bool offline_by_environment() {
  const auto offline = variable("HF_HUB_OFFLINE");
  return is_true(offline.empty() ? variable("TRANSFORMERS_OFFLINE") : offline);
}

}  // namespace mgpu::hub
