#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/batch.hpp"
#include "runtime/data/example.hpp"
#include "runtime/data/mapped_file.hpp"

namespace mgpu::data {

// The file that holds the examples of one piece of a source. All numbers are little endian; every
// section begins at a multiple of 8 bytes, and zeros fill up to it.
//
//   at   size            what
//   0    8               "mgpuTOK1"
//   8    8               checksum of all bytes after this field, with the length of the file
//   16   64              key: SHA-256 of contents, tokenizer and options, in hexadecimal digits
//   80   8               index of the piece
//   88   8 x 6           examples, tokens, rows, bad rows, rows with a lost prompt, notes' bytes
//   136  8               1: labels follow the tokens; 0: a label is its token or none
//   144  8 x (examples+1)  where each example begins among the tokens, and the end
//   ..   4 x examples    labels of each example, without the one of its first token
//   ..   4 x examples    line of each example, counted from the first of the piece
//   ..   (tokens+7)/8    bit i % 8 of byte i / 8: whether token i has a label
//   ..   4 x tokens      ids
//   ..   4 x tokens      labels, if there are any
//   ..   notes' bytes    notes, one per line: "bad" or "lost", a space, the line, a space, a text.
//                        If rows have tools that were not written: first "tools N", their number

struct ShardNote {
  bool bad = false;        // false: a prompt that lost its end
  std::uint64_t line = 0;  // counted from 0, the first line of the piece
  std::string text;
};

// Collects the examples of a shard and lays out its file.
class ShardWriter {
 public:
  void add(const Example& example, std::uint64_t line);
  void add_bad(std::uint64_t line, std::string_view what);
  std::string finish(std::string_view key, std::uint64_t piece) const;

 private:
  void note(const char* kind, std::uint64_t line, std::string_view text);

  std::uint64_t rows_ = 0, bad_ = 0, lost_ = 0, unwritten_tools_ = 0;
  bool explicit_labels_ = false;
  std::vector<std::uint64_t> starts_{0};
  std::vector<std::uint32_t> label_counts_, lines_;
  std::vector<std::int32_t> ids_, labels_;
  std::string notes_;
};

// A shard file is missing, torn, damaged or belongs to other data; the message states which.
class ShardError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The tokens of one example and their labels; valid as long as the shard lives.
struct Sequence {
  std::span<const std::int32_t> ids;
  const std::uint8_t* mask = nullptr;    // of the whole shard
  std::uint64_t first = 0;               // index of ids[0] among the shard's tokens
  const std::int32_t* labels = nullptr;  // of the whole shard, or null

  std::int32_t label(std::size_t i) const {
    const std::uint64_t at = first + i;
    if ((mask[at / 8] >> (at % 8) & 1) == 0) return kNoTarget;
    return labels ? labels[at] : ids[i];
  }
};

// A mapped shard file. Opening it reads the whole file once to verify the checksum and all ids,
// which must be below `vocabulary` (0: unknown): the kernels do not check them.
class Shard {
 public:
  Shard(const std::filesystem::path& path, std::string_view key, std::uint64_t piece,
        std::int64_t vocabulary = 0);

  std::size_t size() const { return label_counts_.size(); }
  Sequence operator[](std::size_t i) const;
  std::uint32_t label_count(std::size_t i) const { return label_counts_[i]; }
  // The number of labels among the first `length` tokens of an example, without that of the first
  // token.
  std::uint32_t label_count(std::size_t i, std::size_t length) const;
  std::uint32_t line(std::size_t i) const { return lines_[i]; }

  std::uint64_t rows() const { return rows_; }
  std::uint64_t bad() const { return bad_; }
  std::uint64_t lost() const { return lost_; }
  std::uint64_t unwritten_tools() const { return unwritten_tools_; }
  std::vector<ShardNote> notes() const;  // the first few

 private:
  bool has_only_ids_below(std::int64_t limit) const;

  MappedFile file_;
  std::uint64_t rows_ = 0, bad_ = 0, lost_ = 0, unwritten_tools_ = 0;
  std::span<const std::uint64_t> starts_;
  std::span<const std::uint32_t> label_counts_, lines_;
  const std::uint8_t* mask_ = nullptr;
  const std::int32_t* ids_ = nullptr;
  const std::int32_t* labels_ = nullptr;
  std::string_view notes_;
};

// Writes a file completely or not at all: to a temporary name, fsynced, then renamed.
void write_atomically(const std::filesystem::path& path, std::string_view bytes);
// The same for a file of dataset_prepared_path, whose folders are created. Throws
// std::runtime_error that names the key.
void write_prepared(const std::filesystem::path& path, std::string_view bytes);

}  // namespace mgpu::data
