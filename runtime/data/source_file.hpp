#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/mapped_file.hpp"

namespace mgpu::data {

// Throws for a path that is no JSONL file, with the command that makes one of it: Parquet, Arrow,
// CSV, a JSON array, a compressed file, a data set of the Hub; and for folders and UTF-16.
void refuse_other_formats(const std::string& path);

// A JSONL file, cut into pieces that can be read independently. The cuts depend on the size of the
// file and nothing else.
class SourceFile {
 public:
  // Maps the file and computes its digest, on so many threads (0: all cores).
  SourceFile(const std::string& path, int threads);

  const std::string& path() const { return path_; }
  const std::string& digest() const { return digest_; }

  std::size_t pieces() const;
  // The lines that begin within a piece: together, the pieces are the file without its BOM.
  std::string_view piece(std::size_t index) const;
  // The number of the first line of a piece; the first line of the file is 1.
  std::uint64_t first_line(std::size_t index) const;

 private:
  std::size_t start_of(std::size_t piece) const;

  std::string path_;
  MappedFile file_;
  std::size_t piece_bytes_ = 1;
  std::string digest_;
  std::vector<std::uint64_t> line_feeds_;  // in the file before each block of the digest
};

}  // namespace mgpu::data
