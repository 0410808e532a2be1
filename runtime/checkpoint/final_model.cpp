#include "runtime/checkpoint/final_model.hpp"

#include <errno.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <set>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/file.hpp"

namespace mgpu::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kModel = "model", kAdapter = "adapter_model";
// What a folder has beside the weights of a model.
constexpr std::array kOtherFiles = {
    "tokenizer.json",    "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "chat_template.jinja",   "vocab.json",
    "merges.txt",        "tokenizer.model",       "generation_config.json"};
constexpr const char* kMoreTemplates = "additional_chat_templates";

std::string index_of(std::string_view stem) {
  return fmt::format("{}.safetensors.index.json", stem);
}

std::string config_of(std::string_view stem) {
  return stem == kModel ? "config.json" : "adapter_config.json";
}

// "model.safetensors", or "model-00001-of-00002.safetensors".
bool has_weights(std::string_view name, std::string_view stem) {
  if (!name.starts_with(stem) || !name.ends_with(".safetensors")) return false;
  const auto middle = name.substr(stem.size(), name.size() - stem.size() - 12);
  return middle.empty() ||
         (middle.starts_with('-') && middle.find_first_not_of("-of0123456789") == middle.npos);
}

// The order in which files appear: without the later ones, no program loads the earlier ones.
enum Order { kOther, kIndex, kConfiguration };

Order order_of(const fs::path& file) {
  const auto name = file.filename().string();
  if (name == config_of(kModel) || name == config_of(kAdapter)) return kConfiguration;
  return name == index_of(kModel) || name == index_of(kAdapter) ? kIndex : kOther;
}

// The files of a draft, relative to it and in this order. fsyncs them.
std::vector<fs::path> files_of(const fs::path& draft) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(draft)) {
    if (entry.is_directory()) continue;
    sync_file(entry.path().string());
    files.push_back(entry.path().lexically_relative(draft));
  }
  std::ranges::stable_sort(files, {}, order_of);
  return files;
}

void remove_file(const fs::path& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    throw_write_error("replace", path.string(), errno);
}

struct OldModel {
  fs::path folder;
  std::string_view stem;
};

// Removes first what makes programs load the models, then their weights.
void remove_models(const std::vector<OldModel>& models) {
  for (const auto& [folder, stem] : models) {
    if (!fs::is_directory(folder)) continue;
    remove_file(folder / config_of(stem));
    remove_file(folder / index_of(stem));
    sync_folder(folder.string());
  }
  std::vector<fs::path> weights;
  for (const auto& [folder, stem] : models) {
    if (!fs::is_directory(folder)) continue;
    for (const auto& entry : fs::directory_iterator(folder))
      if (has_weights(entry.path().filename().string(), stem)) weights.push_back(entry.path());
  }
  for (const auto& path : weights) remove_file(path);
}

void move_files(const std::vector<fs::path>& files, const fs::path& from, const fs::path& to) {
  std::set<fs::path> folders{to};
  for (const auto& file : files) folders.insert((to / file).parent_path());
  for (const auto& folder : folders) fs::create_directories(folder);
  Order order = kOther;
  const auto sync_folders = [&] {
    for (const auto& folder : folders) sync_folder(folder.string());
  };
  for (const auto& file : files) {
    if (order_of(file) != order) sync_folders();
    order = order_of(file);
    const auto target = (to / file).string();
    if (::rename((from / file).c_str(), target.c_str()) != 0)
      throw_write_error("create", target, errno);
  }
  sync_folders();
}

void remove_other_files(const fs::path& folder) {
  for (const auto* name : kOtherFiles) remove_file(folder / name);
  fs::remove_all(folder / kMoreTemplates);
}

}  // namespace

void remove_final_model(const std::string& folder) {
  remove_models({{folder, kModel}, {folder, kAdapter}});
  remove_other_files(folder);
}

FinalModelDraft::FinalModelDraft(std::string folder) : folder_(std::move(folder)) {
  static std::atomic<unsigned> count = 0;
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw_write_error("create", folder_, error.value());
  const auto path =
      (fs::path(folder_) / fmt::format(".final-model.tmp-{}-{}", ::getpid(), count++)).string();
  if (::mkdir(path.c_str(), 0777) != 0) throw_write_error("create a folder in", folder_, errno);
  path_ = path;
}

FinalModelDraft::~FinalModelDraft() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

void FinalModelDraft::publish(const Replaced& replaced) {
  const auto files = files_of(path_);
  std::vector<OldModel> old;
  if (replaced.whole) old.push_back({folder_, kModel});
  if (replaced.adapter) old.push_back({folder_, kAdapter});
  for (const auto& file : files)
    if (order_of(file) == kConfiguration)
      old.push_back({fs::path(folder_) / file.parent_path(),
                     file.filename() == config_of(kModel) ? kModel : kAdapter});
  remove_models(old);
  if (replaced.whole) remove_other_files(folder_);
  move_files(files, path_, folder_);
  fs::remove_all(path_);
  path_.clear();
}

}  // namespace mgpu::checkpoint
