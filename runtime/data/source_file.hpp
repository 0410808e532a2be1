#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/mapped_file.hpp"

namespace mgpu::data {

// Throws for a path that is not a JSONL file: Parquet, Arrow, CSV, TSV, a JSON array, a compressed
// file, UTF-16, a data set of the Hub, a folder. The message contains the command that converts it.
void refuse_other_formats(const std::string& path);

// A JSONL file, split into pieces that can be read independently. The split depends on the size of
// the file only.
class SourceFile {
 public:
  // Maps the file and computes its digest on `threads` threads (0: all cores).
  SourceFile(const std::string& path, int threads);

  const std::string& path() const { return path_; }
  const std::string& digest() const { return digest_; }

  std::size_t pieces() const { return first_lines_.size(); }
  // The lines that begin within a piece. Together, the pieces are the file without its byte order
  // mark.
  std::string_view piece(std::size_t index) const;
  // The line number of a piece's first line; the first line of the file is 1.
  std::uint64_t first_line(std::size_t index) const { return first_lines_[index]; }

 private:
  std::string path_;
  MappedFile file_;
  std::string digest_;
  std::vector<std::size_t> starts_;         // of the pieces, and the end of the file
  std::vector<std::uint64_t> first_lines_;  // of the pieces
};

}  // namespace mgpu::data
