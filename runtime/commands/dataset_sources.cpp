#include "runtime/commands/dataset_sources.hpp"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "runtime/commands/dataset_info.hpp"
#include "runtime/commands/hub_names.hpp"
#include "runtime/data/file_format.hpp"
#include "runtime/data/row_range.hpp"
#include "runtime/hub/dataset_files.hpp"

namespace mgpu::recipes {
namespace {

namespace fs = std::filesystem;
using train::DataSource;

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool is_there(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_pattern(const std::string& path) {
  return path.find_first_of("*?[") != path.npos && !is_there(path);
}

// In the order of their names.
std::vector<std::string> glob_files(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> files;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    for (std::size_t i = 0; i < found.gl_pathc; ++i)
      if (!is_folder(found.gl_pathv[i])) files.emplace_back(found.gl_pathv[i]);
  ::globfree(&found);
  if (files.empty()) throw std::runtime_error(fmt::format("no file matches {}", pattern));
  return files;
}

std::string slice_of(const std::string& split) {
  const auto open = split.find('[');
  return open == split.npos ? "" : split.substr(open);
}

class Expansion {
 public:
  explicit Expansion(const FolderOf& folder_of) : folder_of_(folder_of) {}

  void add(const DataSource& source) {
    data::check_file_type(source.file_type);
    const auto parts = data::parse_split(source.split);
    if (parts.size() > 1 && source.max_samples > 0)
      throw std::runtime_error(fmt::format(
          "{}: max_samples and a sum of splits ({}) cannot be combined; use slices such as "
          "train[:100]",
          source.path, source.split));
    std::string_view rest = source.split;
    for (const auto& part : parts) {
      const auto text = rest.substr(0, rest.find('+'));
      rest.remove_prefix(std::min(rest.size(), text.size() + 1));
      auto one = source;
      one.split = part.name + slice_of(std::string(text));
      add_part(one, part.name);
      ++dataset_;
    }
  }

  std::vector<DataSource> take() { return std::move(files_); }

 private:
  void add_part(const DataSource& source, const std::string& split) {
    std::string folder;
    if (is_named_dataset(source)) {
      folder = folder_of_(source);
      if (folder.empty()) return add_file(source, source.path);  // not downloaded yet
    } else if (is_folder(source.path)) {
      folder = source.path;
    }
    if (!folder.empty()) {
      for (const auto& file : hub::split_files(folder, {.dataset = source.path,
                                                        .subset = source.subset,
                                                        .split = split,
                                                        .data_dir = source.data_dir,
                                                        .data_files = source.data_files}))
        add_file(source, file);
      return;
    }
    if (split != "train")
      throw std::runtime_error(
          fmt::format("{} has no split {}; a file has only train", source.path, split));
    if (!source.subset.empty())
      throw std::runtime_error(
          fmt::format("{} has no subset {}: it is a file", source.path, source.subset));
    if (!is_pattern(source.path)) return add_file(source, source.path);
    for (const auto& file : glob_files(source.path)) add_file(source, file);
  }

  void add_file(const DataSource& source, const std::string& path) {
    files_.push_back(source);
    files_.back().path = path;
    files_.back().dataset = dataset_;
  }

  const FolderOf& folder_of_;
  std::vector<DataSource> files_;
  std::size_t dataset_ = 0;
};

}  // namespace

std::vector<DataSource> files_of(const std::vector<DataSource>& sources,
                                 const FolderOf& folder_of) {
  Expansion expansion(folder_of);
  for (const auto& source : sources) expansion.add(source);
  return expansion.take();
}

void apply_dataset_infos(train::TrainConfig& config) {
  for (auto* sources : {&config.dataset_name, &config.eval_dataset})
    for (auto& source : *sources) apply_dataset_info(source);
}

}  // namespace mgpu::recipes
