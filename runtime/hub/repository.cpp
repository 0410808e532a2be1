#include "runtime/hub/repository.hpp"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "rendezvous/base/file_presence.hpp"
#include "runtime/checkpoint/hub_cache.hpp"
#include "runtime/hub/dataset_files.hpp"

namespace mgpu::hub {
namespace {

namespace fs = std::filesystem;
using rendezvous::is_there;

// A value such as data/train.jsonl is a path even if there is no such file.
bool ends_like_a_file(const std::string& value) {
  constexpr std::array<std::string_view, 17> kFileEndings{
      ".jsonl", ".ndjson", ".json", ".csv", ".tsv",         ".txt",  ".parquet", ".arrow", ".gz",
      ".zst",   ".zip",    ".bz2",  ".xz",  ".safetensors", ".yaml", ".yml",     ".py"};
  return std::ranges::any_of(kFileEndings, [&](auto ending) { return value.ends_with(ending); });
}

// For models/qwen with a folder models: somebody mistyped a path.
bool is_absent(const std::string& value) {
  return !is_there(value) && !is_there(value.substr(0, value.find('/')));
}

std::string with_dashes(std::string name) {
  if (const auto slash = name.find('/'); slash != name.npos) name.replace(slash, 1, "--");
  return name;
}

// ModelScope's cache has had three layouts. The first is that of its programs since 1.38.
std::vector<fs::path> modelscope_folders(const Repository& repository) {
  const char* const chosen = ::getenv("MODELSCOPE_CACHE");
  const char* const home = ::getenv("HOME");
  const fs::path base =
      chosen && *chosen ? fs::path(chosen) : fs::path(home ? home : "") / ".cache" / "modelscope";
  const fs::path kind = repository.is_dataset() ? "datasets" : "models";
  const auto revision = repository.revision == "main" ? "master" : repository.revision;
  std::vector<fs::path> folders{base / kind / with_dashes(repository.name) / "snapshots" /
                                revision};
  const auto slash = repository.name.find('/');
  if (revision != "master" || slash == repository.name.npos) return folders;
  std::string name = repository.name.substr(slash + 1);
  for (auto dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 3))
    name.replace(dot, 1, "___");
  const auto owner = repository.name.substr(0, slash);
  folders.push_back(base / kind / owner / name);
  folders.push_back(base / "hub" / kind / owner / name);
  return folders;
}

checkpoint::HubKind kind_of(const Repository& repository) {
  return repository.is_dataset() ? checkpoint::HubKind::dataset : checkpoint::HubKind::model;
}

}  // namespace

bool looks_like_model(const std::string& value) {
  return value.find('/') != value.npos && looks_like_dataset(value);
}

bool looks_like_dataset(const std::string& value) {
  return checkpoint::is_hub_id(value) && !ends_like_a_file(value);
}

bool is_model_name(const std::string& value) {
  return looks_like_model(value) && is_absent(value);
}

bool is_dataset_name(const std::string& value) {
  return looks_like_dataset(value) && is_absent(value);
}

std::string noun(const Repository& repository) {
  if (repository.is_dataset()) return "dataset";
  const bool adapter =
      repository.part == Part::adapter || repository.part == Part::adapter_settings;
  return adapter ? "adapter" : "model";
}

std::string download_command(const Repository& repository) {
  const bool revised = repository.revision != "main";
  if (repository.site == Site::modelscope)
    return fmt::format("modelscope download --{} {}{}",
                       repository.is_dataset() ? "dataset" : "model", repository.name,
                       revised ? " --revision " + repository.revision : "");
  return fmt::format("hf download {}{}{}", repository.name,
                     repository.is_dataset() ? " --repo-type dataset" : "",
                     revised ? " --revision " + repository.revision : "");
}

std::vector<std::string> patterns(Part part) {
  if (part == Part::adapter_settings) return {"adapter_config.json", "README.md"};
  if (part == Part::rows)
    return {"README.md", "*.jsonl",   "*.ndjson", "*.json", "*.csv", "*.tsv",
            "*.txt",     "*.parquet", "*.arrow",  "*.gz",   "*.zst"};
  std::vector<std::string> all{"config.json", "generation_config.json"};
  if (part == Part::adapter) all = {"adapter_config.json", "adapter_model*"};
  for (const char* file : {"tokenizer*", "special_tokens_map.json", "merges.txt",
                           "added_tokens.json", "chat_template*", "vocab*"})
    all.emplace_back(file);
  if (part == Part::model) {
    all.emplace_back("model*.safetensors");
    all.emplace_back("model*.json");
  }
  return all;
}

std::string cached_folder(const Repository& repository) {
  if (repository.site == Site::huggingface)
    return checkpoint::find_snapshot(kind_of(repository), repository.name, repository.revision);
  for (const auto& folder : modelscope_folders(repository))
    if (is_there(folder) && !fs::is_empty(folder)) return folder.string();
  return {};
}

std::string missing_file(const Repository& repository, const std::string& folder) {
  const auto lacks = [&](const char* name) { return !is_there(fs::path(folder) / name); };
  const bool lacks_tokenizer = repository.own_tokenizer && lacks("tokenizer.json");
  switch (repository.part) {
    case Part::settings:
      if (lacks("config.json")) return "config.json";
      return lacks_tokenizer ? "tokenizer.json" : "";
    case Part::tokenizer:
      return lacks("tokenizer.json") ? "tokenizer.json" : "";
    case Part::model:
      if (auto missing = checkpoint::missing_model_file(folder); !missing.empty()) return missing;
      return lacks_tokenizer ? "tokenizer.json" : "";
    case Part::adapter_settings:
      return lacks("adapter_config.json") ? "adapter_config.json" : "";
    case Part::adapter:
      return checkpoint::missing_model_file(folder);
    case Part::rows:
      return has_rows(folder) ? "" : "a file with rows";
  }
  return {};
}

std::string repository_folder(const Repository& repository) {
  if (repository.site == Site::modelscope)
    return modelscope_folders(repository).front().parent_path().parent_path().string();
  return checkpoint::hub_repository(kind_of(repository), repository.name);
}

std::string lock_path(const Repository& repository) {
  const fs::path folder = repository_folder(repository);
  return (folder.parent_path() / ".locks" / folder.filename() / "mgpu-train.lock").string();
}

}  // namespace mgpu::hub
