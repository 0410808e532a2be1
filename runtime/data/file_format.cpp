#include "runtime/data/file_format.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"
#include "runtime/data/byte_stream.hpp"
#include "runtime/data/row.hpp"

namespace mgpu::data {

namespace {

namespace fs = std::filesystem;

constexpr const char* kEndings =
    ".jsonl, .json, .csv, .tsv, .txt, .parquet or .arrow (text also with .gz or .zst)";
constexpr std::size_t kHeadBytes = 4096;

struct Ending {
  std::string_view name;
  FileKind kind;
};
constexpr std::array kKinds = {
    Ending{".jsonl", FileKind::jsonl}, Ending{".ndjson", FileKind::jsonl},
    Ending{".json", FileKind::jsonl},  // or a list: the contents decide
    Ending{".csv", FileKind::csv},     Ending{".tsv", FileKind::tsv},
    Ending{".txt", FileKind::text},    Ending{".parquet", FileKind::parquet},
    Ending{".arrow", FileKind::arrow},
};

std::string_view without_compression(std::string_view name) {
  for (const std::string_view ending : {".gz", ".zst"})
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  return name;
}

std::optional<FileKind> kind_by_name(std::string_view name) {
  name = without_compression(name);
  const auto found = std::find_if(kKinds.begin(), kKinds.end(),
                                  [&](const Ending& e) { return name.ends_with(e.name); });
  if (found == kKinds.end()) return std::nullopt;
  return found->kind;
}

std::optional<FileKind> kind_by_type(std::string_view type) {
  if (type.empty()) return std::nullopt;
  if (type == "text") return FileKind::text;
  return kind_by_name(fmt::format(".{}", type));
}

// Quotes a word for the shell.
std::string shell_word(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

Compression compression_of(const std::string& path, std::string_view head) {
  if (head.starts_with("\x1f\x8b")) return Compression::gzip;
  if (head.starts_with("\x28\xb5\x2f\xfd")) return Compression::zstd;
  for (const auto& [ending, name] : {std::pair(".gz", "gzip"), std::pair(".zst", "zstd")})
    if (path.ends_with(ending))
      throw rendezvous::InputError(fmt::format(
          "{} is named {}, but its contents are not in the format of {}", path, ending, name));
  struct Other {
    std::string_view magic, name, command;
  };
  for (const auto& [magic, name, command] :
       {Other{"BZh", "bzip2", "bunzip2 -k"}, Other{{"\xfd\x37zXZ\0", 6}, "xz", "unxz -k"},
        Other{"PK\x03\x04", "a zip archive", "unzip"}})
    if (head.starts_with(magic))
      throw rendezvous::InputError(
          fmt::format("{} is {}, which is not supported; unpack it with: {} {}", path, name,
                      command, shell_word(path)));
  return Compression::none;
}

std::string first_contents(const MappedFile& file, const FileFormat& format,
                           const std::string& path) {
  const auto stream = open_bytes(file.bytes(), format.compression, path);
  std::string contents;
  while (contents.size() < kHeadBytes && stream->read(contents)) {
  }
  contents.resize(std::min(contents.size(), kHeadBytes));
  return contents;
}

void refuse_utf16(const std::string& path, std::string_view head) {
  if (!head.starts_with("\xff\xfe") && !head.starts_with("\xfe\xff")) return;
  const auto to = fs::path(path);
  throw rendezvous::InputError(fmt::format(
      "{} is UTF-16, but only UTF-8 is supported; convert it with: iconv -f UTF-16 -t UTF-8 {} > "
      "{}",
      path, shell_word(path),
      shell_word(
          (to.parent_path() / (to.stem().string() + ".utf8" + to.extension().string())).string())));
}

void refuse_folder(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored))
    throw rendezvous::InputError(fmt::format("{} is a folder, not a file", path));
}

char first_character(std::string_view head) {
  if (head.starts_with("\xEF\xBB\xBF")) head.remove_prefix(3);
  const auto first = head.find_first_not_of(" \t\r\n");
  return first == head.npos ? '\0' : head[first];
}

}  // namespace

std::string_view name_of(FileKind kind) {
  switch (kind) {
    case FileKind::jsonl:
      return "JSONL";
    case FileKind::json_array:
      return "JSON list";
    case FileKind::csv:
      return "CSV";
    case FileKind::tsv:
      return "TSV";
    case FileKind::text:
      return "text";
    case FileKind::parquet:
      return "Parquet";
    case FileKind::arrow:
      return "Arrow";
  }
  return "";
}

bool has_lines_as_rows(FileKind kind) {
  return kind == FileKind::jsonl || kind == FileKind::text;
}

bool is_columnar(FileKind kind) {
  return kind == FileKind::parquet || kind == FileKind::arrow;
}

bool has_known_ending(std::string_view name) {
  return kind_by_name(name).has_value();
}

void check_file_type(std::string_view name) {
  if (!name.empty() && (!kind_by_type(name) || without_compression(name) != name))
    throw rendezvous::InputError(fmt::format(
        "unknown file type {}; need one of json, csv, tsv, text, parquet, arrow", printable(name)));
}

FileFormat format_of_file(const std::string& path, const std::string& type) {
  refuse_folder(path);
  const MappedFile file(path);
  const std::string head(file.bytes().substr(0, kHeadBytes));
  refuse_utf16(path, head);
  FileFormat format{.compression = compression_of(path, head)};
  const std::string contents =
      format.compression == Compression::none ? head : first_contents(file, format, path);
  if (format.compression != Compression::none) refuse_utf16(path, contents);

  auto kind = type.empty() ? kind_by_name(path) : kind_by_type(type);
  if (contents.starts_with("PAR1")) kind = FileKind::parquet;
  if (contents.starts_with("ARROW1") || contents.starts_with(std::string("\xff\xff\xff\xff", 4)))
    kind = FileKind::arrow;
  const char first = first_character(contents);
  if (!kind && (first == '{' || first == '[')) kind = FileKind::jsonl;
  if (!kind)
    throw rendezvous::InputError(
        fmt::format("cannot tell the format of {} from its name or contents; name it {}, or set "
                    "ds_type beside its path",
                    path, kEndings));
  format.kind = *kind == FileKind::jsonl && first == '[' ? FileKind::json_array : *kind;
  if (is_columnar(format.kind) && format.compression != Compression::none)
    throw rendezvous::InputError(fmt::format(
        "{} is a compressed {} file; unpack it with: {} {}", path, name_of(format.kind),
        format.compression == Compression::gzip ? "gunzip -k" : "unzstd", shell_word(path)));
  return format;
}

}  // namespace mgpu::data
