#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <stdexcept>

#include <fmt/format.h>

#include "rendezvous/base/small_file.hpp"
#include "runtime/data/row.hpp"
#include "runtime/data/source_file.hpp"

namespace mgpu::data {

namespace {

namespace fs = std::filesystem;

// Quotes a word for the shell.
std::string shell_word(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// The path is passed to Python as an argument, so it needs no quoting for Python.
std::string datasets_command(std::string_view kind, const std::string& path) {
  const std::string to = fs::path(path).replace_extension(".jsonl").string();
  return fmt::format(
      "python3 -c 'import sys, datasets; datasets.load_dataset(\"{}\", data_files=sys.argv[1], "
      "split=\"train\").to_json(sys.argv[2])' {} {}",
      kind, shell_word(path), shell_word(to));
}

[[noreturn]] void refuse(const std::string& path, std::string_view is, const std::string& command) {
  throw std::runtime_error(fmt::format(
      "{} is {}, but only JSONL in UTF-8 is supported; convert it with: {}", path, is, command));
}

std::string beginning_of(const std::string& path) {
  return rendezvous::read_small_file(path, 4096, rendezvous::FileKind::regular).text;
}

[[noreturn]] void refuse_absent(const std::string& path) {
  const auto slashes = std::count(path.begin(), path.end(), '/');
  const bool file_name = fs::path(path).extension() == ".jsonl" ||
                         fs::path(path).extension() == ".json" || path.starts_with('.') ||
                         path.starts_with('/');
  if (file_name || slashes > 1 || path.empty())
    throw std::runtime_error(fmt::format("cannot open {}: No such file or directory", path));
  const std::string to = fs::path(path).filename().string() + ".jsonl";
  throw std::runtime_error(
      fmt::format("cannot open {}: no such file; if it is a dataset of the Hugging Face Hub, "
                  "download it with: python3 -c 'import sys, datasets; "
                  "datasets.load_dataset(sys.argv[1], split=\"train\").to_json(sys.argv[2])' {} {}",
                  path, shell_word(path), shell_word(to)));
}

[[noreturn]] void refuse_folder(const std::string& path) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path().filename().string());
  std::sort(files.begin(), files.end());
  std::string list;
  for (const std::string& file : files)
    if (list.size() < 200) list += (list.empty() ? "" : ", ") + file;
  throw std::runtime_error(fmt::format("{} is a folder; give the names of the files in it{}", path,
                                       files.empty() ? " (it has no .jsonl file)" : ": " + list));
}

void refuse_by_contents(const std::string& path) {
  const std::string head = beginning_of(path);
  const std::string name = shell_word(path);
  const std::string to = shell_word(fs::path(path).replace_extension(".jsonl").string());
  if (head.starts_with("PAR1")) refuse(path, "a Parquet file", datasets_command("parquet", path));
  if (head.starts_with("ARROW1") || head.starts_with(std::string("\xff\xff\xff\xff", 4)))
    refuse(path, "an Arrow file", datasets_command("arrow", path));
  if (head.starts_with("\x1f\x8b")) refuse(path, "compressed", "gunzip -k " + name);
  if (head.starts_with("\x28\xb5\x2f\xfd")) refuse(path, "compressed", "unzstd " + name);
  if (head.starts_with("\xff\xfe") || head.starts_with("\xfe\xff"))
    refuse(path, "UTF-16", fmt::format("iconv -f UTF-16 -t UTF-8 {} > {}", name, to));
  if (path.ends_with(".txt")) return;  // plain text, from which a tokenizer can be trained
  const auto first = head.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  if (first != head.npos && head[first] == '[')
    refuse(path, "one JSON array",
           fmt::format("jq -c '.[]' {} > {}", name,
                       shell_word(fs::path(path).replace_extension(".rows.jsonl").string())));
}

}  // namespace

void refuse_other_formats(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) refuse_absent(path);
    return;  // opening the file will report why
  }
  if (S_ISDIR(status.st_mode)) refuse_folder(path);
  const std::string ending = fs::path(path).extension().string();
  if (ending == ".parquet") refuse(path, "a Parquet file", datasets_command("parquet", path));
  if (ending == ".arrow") refuse(path, "an Arrow file", datasets_command("arrow", path));
  if (ending == ".csv") refuse(path, "a CSV file", datasets_command("csv", path));
  if (ending == ".tsv")
    refuse(path, "a TSV file",
           fmt::format("python3 -c 'import sys, pandas; pandas.read_csv(sys.argv[1], "
                       "sep=\"\\t\").to_json(sys.argv[2], orient=\"records\", lines=True)' {} {}",
                       shell_word(path),
                       shell_word(fs::path(path).replace_extension(".jsonl").string())));
  if (S_ISREG(status.st_mode)) refuse_by_contents(path);
}

}  // namespace mgpu::data
