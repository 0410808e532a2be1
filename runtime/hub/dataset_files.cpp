#include "runtime/hub/dataset_files.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "rendezvous/base/small_file.hpp"
#include "rendezvous/base/spelling.hpp"
#include "rendezvous/yaml/yaml.hpp"

namespace mgpu::hub {
namespace {

namespace fs = std::filesystem;
using rendezvous::YamlNode;

constexpr std::size_t kLongestCard = 8 << 20;
constexpr std::size_t kLongestHead = 2 << 20;  // of a card
constexpr std::size_t kMostNodes = 200'000;
constexpr std::size_t kMostFiles = 100'000;
constexpr std::size_t kShownNames = 300;  // bytes

bool is_rows_file(const fs::path& path) {
  const auto name = path.filename().string();
  if (name == "dataset_infos.json" || name == "dataset_dict.json" || name == "state.json" ||
      name == "dataset_info.json" || name == "config.json")
    return false;
  return path.extension() == ".jsonl" || path.extension() == ".json";
}

// Relative to the folder, in order.
std::vector<std::string> rows_files(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end;
       !error && at != end && names.size() < kMostFiles; at.increment(error)) {
    std::error_code ignored;
    if (is_rows_file(at->path()) && at->is_regular_file(ignored))
      names.push_back(at->path().lexically_relative(folder).string());
  }
  std::ranges::sort(names);
  return names;
}

const YamlNode* find(const YamlNode& map, std::string_view key) {
  if (!map.is_map()) return nullptr;
  for (std::size_t i = 0; i + 1 < map.items.size(); i += 2)
    if (map.items[i].text == key) return &map.items[i + 1];
  return nullptr;
}

std::string text_at(const YamlNode& map, std::string_view key) {
  const auto* found = find(map, key);
  return found ? found->text : "";
}

// The list `configs` at the head of the card; nothing: there is none that can be read.
std::optional<YamlNode> configurations(const fs::path& folder) {
  const auto card = rendezvous::read_small_file((folder / "README.md").string(), kLongestCard);
  if (!card.complete() || !card.text.starts_with("---")) return std::nullopt;
  const auto begin = card.text.find('\n'), end = card.text.find("\n---", begin);
  if (begin == card.text.npos || end == card.text.npos) return std::nullopt;
  rendezvous::YamlRules rules;
  rules.most_nodes = kMostNodes;
  rules.most_text = kLongestHead;
  rules.most_bytes = kLongestHead;
  try {
    const auto top = rendezvous::parse_yaml(card.text.substr(begin + 1, end - begin), rules);
    const auto* configs = find(top, "configs");
    if (configs && configs->is_list() && !configs->items.empty()) return *configs;
  } catch (const rendezvous::YamlError&) {  // the names of files decide
  }
  return std::nullopt;
}

// Names that others have chosen, for a message.
std::string listed(const std::vector<std::string>& names) {
  return rendezvous::shown(fmt::format("{}", fmt::join(names, ", ")), kShownNames);
}

std::vector<std::string> words(const YamlNode& node) {
  if (!node.is_list())
    return node.text.empty() ? std::vector<std::string>() : std::vector{node.text};
  std::vector<std::string> all;
  for (const auto& item : node.items) all.push_back(item.text);
  return all;
}

// The patterns of each split that a configuration lists.
std::vector<std::pair<std::string, std::vector<std::string>>> splits_of(const YamlNode& config) {
  std::vector<std::pair<std::string, std::vector<std::string>>> splits;
  const auto* files = find(config, "data_files");
  if (!files) return splits;
  const bool by_split = files->is_list() && !files->items.empty() && files->items.front().is_map();
  if (!by_split) return {{"train", words(*files)}};
  for (const auto& item : files->items) {
    const auto* path = find(item, "path");
    if (path) splits.emplace_back(text_at(item, "split"), words(*path));
  }
  return splits;
}

const YamlNode& chosen_configuration(const YamlNode& configs, const std::string& dataset,
                                     const std::string& subset) {
  std::vector<std::string> names;
  for (const auto& config : configs.items) {
    names.push_back(text_at(config, "config_name"));
    if (!subset.empty() && names.back() == subset) return config;
  }
  if (!subset.empty())
    throw std::runtime_error(
        fmt::format("dataset {} has no subset {}; it has {}", dataset, subset, listed(names)));
  for (const auto& config : configs.items)
    if (text_at(config, "default") == "true" || text_at(config, "config_name") == "default")
      return config;
  if (configs.items.size() == 1) return configs.items.front();
  throw std::runtime_error(
      fmt::format("dataset {} has the subsets {}; choose one with the key "
                  "subset next to path",
                  dataset, listed(names)));
}

bool matches(const std::string& pattern, const std::string& name) {
  // "data/**" includes folders below, and so does "data/*" in fnmatch without FNM_PATHNAME.
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0 || name == pattern ||
         name.starts_with(pattern + "/");
}

// Whether the words of a path, which other characters than letters separate, include one of these.
bool has_word(const std::string& name, std::initializer_list<std::string_view> wanted) {
  std::string word;
  for (const char c : name + "/") {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    if (std::ranges::find(wanted, word) != wanted.end()) return true;
    word.clear();
  }
  return false;
}

bool names_split(const std::string& file, const std::string& split) {
  if (split == "train") return has_word(file, {"train", "training"});
  if (split == "validation") return has_word(file, {"validation", "valid", "val", "dev"});
  if (split == "test") return has_word(file, {"test", "testing", "eval", "evaluation"});
  return has_word(file, {split});
}

// By the names of files, as the library `datasets` does it for repositories without a list.
std::vector<std::string> files_by_name(const std::vector<std::string>& files,
                                       const std::string& split) {
  std::vector<std::string> found;
  for (const auto& file : files)
    if (names_split(file, split)) found.push_back(file);
  const bool named = std::ranges::any_of(files, [](const auto& file) {
    return names_split(file, "train") || names_split(file, "validation") ||
           names_split(file, "test");
  });
  return found.empty() && !named && split == "train" ? files : found;
}

}  // namespace

bool has_rows(const std::string& folder) {
  return !rows_files(folder).empty();
}

std::vector<std::string> split_files(const std::string& folder, const std::string& dataset,
                                     const std::string& subset, const std::string& split) {
  const auto files = rows_files(folder);
  std::vector<std::string> found;
  std::vector<std::string> splits;
  if (const auto configs = configurations(folder)) {
    for (const auto& [name, patterns] :
         splits_of(chosen_configuration(*configs, dataset, subset))) {
      splits.push_back(name);
      if (name != split) continue;
      for (const auto& file : files)
        if (std::ranges::any_of(patterns, [&](const auto& p) { return matches(p, file); }))
          found.push_back(file);
    }
    if (splits.empty()) found = files_by_name(files, split);
  } else if (!subset.empty()) {
    throw std::runtime_error(
        fmt::format("dataset {} has no subset {}: its README.md lists none", dataset, subset));
  } else {
    found = files_by_name(files, split);
  }
  if (found.empty()) {
    const auto& list = splits.empty() ? files : splits;
    throw std::runtime_error(fmt::format("dataset {} has no JSONL file of the split {}; it has {}",
                                         dataset, split, listed(list)));
  }
  for (auto& file : found) file = (fs::path(folder) / file).string();
  return found;
}

}  // namespace mgpu::hub
