#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/blocks.hpp"
#include "runtime/data/mapped_file.hpp"
#include "runtime/data/rows.hpp"

namespace mgpu::data {

struct FileOptions {
  std::string type = {};        // instead of the ending of the name: json, csv, ...; empty: none
  std::uint64_t row_limit = 0;  // only so many rows from the beginning; 0: all
  // Does not read the whole file: it has no pieces, and its digest is that of its size and of its
  // first and last bytes.
  bool streamed = false;
};

// A file of rows. A plain file whose rows are lines is split into pieces that can be read
// independently; the split depends on its size only. Other files are read from the beginning, in
// blocks.
class SourceFile {
 public:
  // Maps the file and computes its digest on `threads` threads (0: all cores). Throws
  // std::runtime_error with the path if it cannot be read.
  SourceFile(const std::string& path, int threads, const FileOptions& options = {});

  const std::string& path() const { return path_; }
  const std::string& digest() const { return digest_; }  // of the file as it is on disk
  const FileFormat& format() const { return format_; }
  const RowSyntax& syntax() const { return *syntax_; }
  // Columns that rows lack because their types are not supported: "image (binary)"; empty: none.
  const std::string& skipped_columns() const { return skipped_columns_; }
  std::uint64_t row_limit() const { return options_.row_limit; }

  bool has_pieces() const { return !first_lines_.empty(); }
  std::size_t pieces() const { return first_lines_.size(); }
  // The lines that begin within a piece. Together, the pieces are the file without its byte order
  // mark.
  std::string_view piece(std::size_t index) const;
  // The line number of a piece's first line; the first line of the file is 1.
  std::uint64_t first_line(std::size_t index) const { return first_lines_[index]; }

  // Throws if another program has changed the file since it was mapped. A call after a part was
  // read makes sure that the part was as the digest says. A plain file that was replaced by another
  // one of the same name has not changed: it is still mapped.
  void require_unchanged() const;

  // Reads any file from the beginning. The reader must not outlive this object.
  std::unique_ptr<BlockReader> blocks() const;

  // Stops counting what was read of the file as memory of this process.
  void unload() const noexcept { file_.unload(); }

  // Calls `use` for each row from the beginning until it returns false, with the number of its line
  // or row.
  void for_each_row(const std::function<bool(std::uint64_t number, const Rows& row)>& use) const;

 private:
  // The file as it was when it last had another stamp than the mapping but the same contents, so
  // that these are not compared again for every part.
  struct Compared {
    std::mutex mutex;
    std::optional<FileStamp> stamp;
  };

  void cut(int threads);

  std::string path_;
  FileOptions options_;
  FileFormat format_;
  MappedFile file_;
  std::unique_ptr<RowSyntax> syntax_;  // readers keep references to it
  std::unique_ptr<Compared> compared_;
  std::string digest_, skipped_columns_;
  std::vector<std::size_t> starts_;         // of the pieces, and the end of the file
  std::vector<std::uint64_t> first_lines_;  // of the pieces
};

// Calls `use` for the wanted pieces or blocks of a file on up to `threads` threads (0: one per
// usable core), in this order. After an exception no new calls start, and the exception of the
// lowest index is rethrown. Returns the number of the first line or row of every piece or block.
std::vector<std::uint64_t> for_each_block(const SourceFile& file, int threads,
                                          const std::function<bool(std::size_t index)>& is_wanted,
                                          const std::function<void(const Block&)>& use);

}  // namespace mgpu::data
