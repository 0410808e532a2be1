#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/data/byte_stream.hpp"
#include "runtime/data/rows.hpp"

namespace mgpu::data {

// Whole rows of a file, one after another.
struct Block {
  std::size_t index = 0;    // among the blocks of the file
  std::uint64_t first = 1;  // the number of the line or row that it begins with
  std::string text;
};

// Reads a file that cannot be cut at any place, block by block. Where blocks end depends only on
// the contents and the limit.
class BlockReader {
 public:
  virtual ~BlockReader() = default;
  // Returns false at the end. Throws std::runtime_error with the path for a file that is damaged.
  virtual bool next(Block& block) = 0;
};

// The blocks of a text in any syntax but that of columnar files. `row_limit` 0: all rows.
class TextBlocks : public BlockReader {
 public:
  // `syntax` must outlive the reader.
  TextBlocks(std::unique_ptr<ByteStream> bytes, const RowSyntax& syntax, std::string path,
             std::uint64_t row_limit);

  bool next(Block& block) override;

 private:
  std::size_t next_row_end(std::size_t at);
  bool fill();
  void begin();
  void skip_list_start();
  void end_list(std::string_view row);
  [[noreturn]] void fail(const std::string& what) const;

  std::unique_ptr<ByteStream> bytes_;
  const RowSyntax& syntax_;
  std::string path_;
  std::uint64_t row_limit_;
  std::string buffer_;
  bool begun_ = false, no_more_bytes_ = false, ended_ = false;
  std::size_t index_ = 0;
  std::uint64_t number_ = 1;  // of the next line or row
  std::uint64_t rows_ = 0;    // that were returned
};

// Reads the first row of CSV and TSV into `syntax`. Throws std::runtime_error with the path.
void read_columns(ByteStream& bytes, const std::string& path, RowSyntax& syntax);

}  // namespace mgpu::data
