#include "runtime/checkpoint/hub_cache.hpp"

#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <stdexcept>

#include "rendezvous/base/file_presence.hpp"
#include "rendezvous/base/input_error.hpp"
#include "runtime/checkpoint/file.hpp"
#include "runtime/checkpoint/weights.hpp"

namespace mgpu::checkpoint {

namespace fs = std::filesystem;
using rendezvous::is_folder;
using rendezvous::is_there;

namespace {

std::string variable(const char* name) {
  const char* const value = ::getenv(name);
  return value ? value : "";
}

bool is_word(std::string_view text) {
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
  };
  return !text.empty() && text.front() != '.' && text.front() != '-' &&
         std::ranges::all_of(text, plain);
}

bool is_commit(const std::string& revision) {
  return revision.size() == 40 && revision.find_first_not_of("0123456789abcdef") == revision.npos;
}

// Branches and tags may have slashes, as in "refs/pr/1", but stay below refs/.
bool is_reference(const std::string& revision) {
  const fs::path path(revision);
  return !revision.empty() && path.is_relative() && path.lexically_normal() == path &&
         *path.begin() != ".." && revision.find_first_of(" \t\n'\"\\$`;&|<>") == revision.npos;
}

std::string download(const std::string& name, const std::string& revision) {
  return fmt::format("hf download {} --revision {}", name, revision);
}

// A path as huggingface_hub reads it: with ~ and $NAME.
std::string expanded(std::string path) {
  if (path == "~" || path.starts_with("~/")) path.replace(0, 1, variable("HOME"));
  for (auto at = path.find('$'); at != path.npos; at = path.find('$', at)) {
    const bool braces = path.compare(at + 1, 1, "{") == 0;
    const auto begin = at + (braces ? 2 : 1);
    auto end = begin;
    while (end < path.size() &&
           (std::isalnum(static_cast<unsigned char>(path[end])) != 0 || path[end] == '_'))
      ++end;
    const auto name = path.substr(begin, end - begin);
    if (name.empty() || (braces && path.compare(end, 1, "}") != 0) || !::getenv(name.c_str())) {
      ++at;  // as it is
      continue;
    }
    const auto value = variable(name.c_str());
    path.replace(at, end + (braces ? 1 : 0) - at, value);
    at += value.size();
  }
  return path;
}

// The first file that is missing from the snapshot; "" if it is complete.
std::string missing_file(const fs::path& snapshot) {
  std::error_code ignored;
  const auto there = [&](const std::string& name) { return fs::exists(snapshot / name, ignored); };
  // Report a link whose blob is gone before the files that are missing because of it.
  for (const auto& entry : fs::directory_iterator(snapshot, ignored))
    if (!fs::exists(entry.path(), ignored)) return entry.path().filename().string();
  const bool adapter = there("adapter_config.json");
  if (!adapter && !there("config.json")) return "config.json";
  const std::string stem = adapter ? "adapter_model" : "model";
  const std::string index = stem + ".safetensors.index.json";
  if (there(stem + ".safetensors")) return "";
  if (!there(index))
    return there("pytorch_model.bin") || there("pytorch_model.bin.index.json")
               ? ""  // complete, but in pickle format, which Weights reports
               : stem + ".safetensors";
  const std::string path = (snapshot / index).string();
  for (const auto& [tensor, file] : parse_weight_index(read_file(path, 100'000'000), path))
    if (!there(file)) return file;
  return "";
}

// The commit of a revision; "" if the cache does not know the revision.
std::string known_commit(const fs::path& repository, const std::string& revision) {
  if (is_commit(revision)) return revision;
  const fs::path reference = repository / "refs" / revision;
  if (!rendezvous::is_regular_file(reference)) return {};
  std::string commit = read_file(reference.string(), 1000);
  commit.erase(commit.find_last_not_of(" \n\r\t") + 1);
  return commit;
}

std::string commit_of(const fs::path& repository, const std::string& name,
                      const std::string& revision) {
  const auto commit = known_commit(repository, revision);
  if (commit.empty() && !is_there(repository / "refs" / revision))
    throw rendezvous::InputError(
        fmt::format("revision {} of {} is not in the cache {}; download it: {}", revision, name,
                    hub_cache(), download(name, revision)));
  if (!is_commit(commit))
    throw rendezvous::InputError(
        fmt::format("{} contains no commit id; download the model again: {}",
                    (repository / "refs" / revision).string(), download(name, revision)));
  return commit;
}

void require_reference(const std::string& name, const std::string& revision) {
  if (!is_reference(revision))
    throw rendezvous::InputError(fmt::format("'{}' is not a valid revision of {}", revision, name));
}

}  // namespace

std::string hub_cache() {
  for (const char* whole : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const std::string path = variable(whole); !path.empty()) return expanded(path);
  if (const std::string home = variable("HF_HOME"); !home.empty()) return expanded(home) + "/hub";
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/huggingface/hub";
  return variable("HOME") + "/.cache/huggingface/hub";
}

bool is_hub_id(const std::string& name) {
  const auto slash = name.find('/');
  if (slash == name.npos) return is_word(name);
  return is_word(name.substr(0, slash)) && is_word(name.substr(slash + 1));
}

std::string hub_repository(HubKind kind, const std::string& name) {
  std::string folder = (kind == HubKind::dataset ? "datasets--" : "models--") + name;
  if (const auto slash = folder.find('/'); slash != folder.npos) folder.replace(slash, 1, "--");
  return (fs::path(hub_cache()) / folder).string();
}

std::string find_snapshot(HubKind kind, const std::string& name, const std::string& revision) {
  require_reference(name, revision);
  const fs::path repository = hub_repository(kind, name);
  const auto commit = known_commit(repository, revision);
  const auto snapshot = repository / "snapshots" / commit;
  return is_commit(commit) && is_folder(snapshot) ? snapshot.string() : "";
}

std::string missing_model_file(const std::string& folder) {
  return missing_file(folder);
}

namespace {

// The folder, and whether it is a snapshot in the cache.
struct Resolved {
  fs::path folder;
  bool cached = false;
};

Resolved resolve(const std::string& name, const std::string& revision) {
  if (is_folder(name)) return {name};
  if (is_there(name))
    throw rendezvous::InputError(fmt::format("{} is a file; give the folder of the model", name));
  if (!is_hub_id(name))
    throw rendezvous::InputError(fmt::format("{} is neither a folder nor a Hub id", name));
  require_reference(name, revision);
  const fs::path repository = hub_repository(HubKind::model, name);
  if (!is_folder(repository)) {
    const auto owner = name.substr(0, name.find('/'));
    if (owner != name && is_there(owner))
      throw rendezvous::InputError(fmt::format(
          "there is no folder {}, and it is not a name of the Hub, because {} exists here", name,
          owner));
    throw rendezvous::InputError(
        fmt::format("{} is neither a local folder nor in the cache {}; download it: {}", name,
                    hub_cache(), download(name, revision)));
  }
  const fs::path snapshot = repository / "snapshots" / commit_of(repository, name, revision);
  if (!is_folder(snapshot))
    throw rendezvous::InputError(fmt::format("{} is not in the cache; download it: {}",
                                             snapshot.string(), download(name, revision)));
  return {snapshot, true};
}

}  // namespace

std::string resolve_model(const std::string& name, const std::string& revision) {
  const auto [folder, cached] = resolve(name, revision);
  if (!cached) return name;
  if (const std::string missing = missing_file(folder); !missing.empty())
    throw std::runtime_error(
        fmt::format("the download of {} is incomplete, {} is missing from {}; "
                    "finish it: {}",
                    name, missing, folder.string(), download(name, revision)));
  return folder.string();
}

std::string resolve_model_config(const std::string& name, const std::string& revision) {
  return resolve(name, revision).folder.string();
}

}  // namespace mgpu::checkpoint
