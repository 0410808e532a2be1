#pragma once

#include <string>
#include <string_view>

namespace mgpu::data {

// What a file consists of, apart from compression.
enum class FileKind {
  jsonl,       // a JSON object per line
  json_array,  // one JSON list of objects
  csv,
  tsv,
  text,  // a row per line
  parquet,
  arrow,  // a stream or a file of Arrow's IPC formats
};

enum class Compression { none, gzip, zstd };

struct FileFormat {
  FileKind kind = FileKind::jsonl;
  Compression compression = Compression::none;
};

std::string_view name_of(FileKind kind);

// Whether rows are lines, so that a file can be cut at any line feed.
bool has_lines_as_rows(FileKind kind);

// Whether a plug-in reads it.
bool is_columnar(FileKind kind);

// Whether a file has one of the names that rows are read from, such as train.csv.gz.
bool has_known_ending(std::string_view name);

// The kind that a name such as json, csv or parquet means (ds_type of axolotl); json: by contents.
// Throws std::runtime_error for other names.
void check_file_type(std::string_view name);

// The format of a file: bytes that only one format begins with decide, then the ending of the name,
// then the first character (`{` or `[`). `type` replaces the ending. Throws std::runtime_error with
// the path if nothing decides, and for a path that is no file, UTF-16, and unsupported compression.
FileFormat format_of_file(const std::string& path, const std::string& type = {});

}  // namespace mgpu::data
