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

struct Ending {
  std::string_view text;
  std::string_view format;
};
// In the order of preference between formats that are equally common.
constexpr std::array kEndings = {
    Ending{".parquet", "parquet"}, Ending{".jsonl", "json"}, Ending{".ndjson", "json"},
    Ending{".json", "json"},       Ending{".csv", "csv"},    Ending{".tsv", "csv"},
    Ending{".arrow", "arrow"},     Ending{".txt", "text"},
};

// The format of a file with rows; empty: it has none.
std::string_view rows_format(const fs::path& path) {
  std::string name = path.filename().string();
  for (const auto* other :
       {"dataset_infos.json", "dataset_dict.json", "state.json", "dataset_info.json", "config.json",
        "README.txt", "LICENSE.txt", "requirements.txt"})
    if (name == other) return {};
  for (const std::string_view compressed : {".gz", ".zst"})
    if (name.ends_with(compressed)) name.resize(name.size() - compressed.size());
  const auto found =
      std::ranges::find_if(kEndings, [&](const Ending& e) { return name.ends_with(e.text); });
  return found == kEndings.end() ? std::string_view() : found->format;
}

std::string_view rows_format_of(const std::string& file) {
  return rows_format(file);
}

// Those in the format that most of the files have.
std::vector<std::string> of_one_format(std::vector<std::string> files) {
  std::string_view best;
  std::ptrdiff_t most = 0;
  for (const auto& ending : kEndings) {
    const auto count = std::ranges::count(files, ending.format, &rows_format_of);
    if (count > most) best = ending.format;
    most = std::max(most, count);
  }
  std::erase_if(files, [&](const auto& file) { return rows_format_of(file) != best; });
  return files;
}

// Relative to the folder, in order.
std::vector<std::string> rows_files(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end;
       !error && at != end && names.size() < kMostFiles; at.increment(error)) {
    std::error_code ignored;
    if (!rows_format(at->path()).empty() && at->is_regular_file(ignored))
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

// The splits that the names of files tell of.
std::vector<std::string> named_splits(const std::vector<std::string>& files) {
  std::vector<std::string> splits;
  for (const auto* split : {"train", "validation", "test"})
    if (std::ranges::any_of(files, [&](const auto& file) { return names_split(file, split); }))
      splits.emplace_back(split);
  if (splits.empty() && !files.empty()) splits.emplace_back("train");
  return splits;
}

std::vector<std::string> matching(const std::vector<std::string>& files,
                                  const std::vector<std::string>& patterns) {
  std::vector<std::string> found;
  for (const auto& file : files)
    if (std::ranges::any_of(patterns, [&](const auto& p) { return matches(p, file); }))
      found.push_back(file);
  return found;
}

// The files of the request, and the splits that there are.
struct Found {
  std::vector<std::string> files, splits;
};

Found by_card(const YamlNode& config, const std::vector<std::string>& files,
              const std::string& split) {
  Found found;
  for (const auto& [name, patterns] : splits_of(config)) {
    found.splits.push_back(name);
    if (name != split) continue;
    const auto more = matching(files, patterns);
    found.files.insert(found.files.end(), more.begin(), more.end());
  }
  return found;
}

}  // namespace

bool has_rows(const std::string& folder) {
  return !rows_files(folder).empty();
}

std::vector<std::string> split_files(const std::string& folder, const RowsRequest& request) {
  auto files = rows_files(folder);
  const auto below = (fs::path(request.data_dir) / "").lexically_normal().string();
  if (!request.data_dir.empty() && below != ".")
    std::erase_if(files, [&](const auto& file) { return !file.starts_with(below); });
  Found found;
  if (!request.data_files.empty()) {
    if (request.split == "train") found.files = matching(files, request.data_files);
    found.splits.emplace_back("train");
  } else if (const auto configs =
                 request.data_dir.empty() ? configurations(folder) : std::nullopt) {
    found = by_card(chosen_configuration(*configs, request.dataset, request.subset), files,
                    request.split);
  } else if (!request.subset.empty()) {
    throw std::runtime_error(fmt::format("dataset {} has no subset {}: its README.md lists none",
                                         request.dataset, request.subset));
  }
  if (found.splits.empty()) {
    found.files = files_by_name(files, request.split);
    found.splits = named_splits(files);
  }
  found.files = of_one_format(std::move(found.files));
  if (found.files.empty() && std::ranges::find(found.splits, request.split) == found.splits.end())
    throw std::runtime_error(
        fmt::format("dataset {} has no split {}; it has {}", request.dataset, request.split,
                    found.splits.empty() ? "no files with rows" : listed(found.splits)));
  if (found.files.empty())
    throw std::runtime_error(fmt::format(
        "dataset {}: no file matches {}; it has {}", request.dataset,
        request.data_files.empty() ? "its split " + request.split : listed(request.data_files),
        files.empty() ? "no files with rows" : listed(files)));
  for (auto& file : found.files) file = (fs::path(folder) / file).string();
  return std::move(found.files);
}

}  // namespace mgpu::hub
