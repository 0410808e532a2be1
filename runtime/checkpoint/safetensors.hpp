#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/checkpoint/digest.hpp"
#include "runtime/checkpoint/dtype.hpp"
#include "runtime/checkpoint/file.hpp"

namespace mgpu::checkpoint {

using Metadata = std::map<std::string, std::string>;

// A tensor to be written.
struct TensorPlan {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;

  friend bool operator==(const TensorPlan&, const TensorPlan&) = default;
};

// A tensor of a file. Its bytes are [begin, end) of the data after the header.
struct TensorEntry {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::size_t begin = 0, end = 0;
};

// The contents of a header that was validated against the length of the file.
struct SafetensorsLayout {
  std::vector<TensorEntry> entries;  // in the order of their bytes
  Metadata metadata;
  std::size_t data_begin = 0;
};

// Validates the layout of a file, not the values: all entries lie within the data, without gaps or
// overlaps, and their length matches dtype and shape. Throws an error with the file and the tensor.
SafetensorsLayout read_layout(std::span<const std::byte> file, const std::string& name);

// A .safetensors file, mapped read-only. Tensors may be unaligned: copy, do not cast.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const MappedFile& file() const { return file_; }
  const std::vector<TensorEntry>& entries() const { return layout_.entries; }
  const Metadata& metadata() const { return layout_.metadata; }
  const TensorEntry* find(std::string_view name) const;
  std::span<const std::byte> bytes(const TensorEntry& entry) const;

 private:
  MappedFile file_;
  SafetensorsLayout layout_;
  std::unordered_map<std::string_view, std::size_t> index_;  // keys point into layout_
};

// The manifest's record of a written file.
struct FileRecord {
  std::string name;  // relative to the checkpoint's folder
  std::uint64_t size = 0;
  std::string digest;  // a FileDigest

  friend bool operator==(const FileRecord&, const FileRecord&) = default;
};

// Where a tensor is in a file that is to be written: its bytes are [begin, end) of the file.
struct TensorPlace {
  TensorPlan plan;
  std::uint64_t begin = 0, end = 0;
};

// A .safetensors file that is to be written: all but the bytes of its tensors. Types with larger
// elements come first, so that all tensors are aligned.
struct FilePlan {
  std::string header;  // the first bytes of the file
  std::vector<TensorPlace> tensors;
  std::uint64_t size = 0;
};

// Throws an error that names `path` and the tensor if the file cannot exist.
FilePlan plan_file(const std::string& path, std::vector<TensorPlan> tensors,
                   const Metadata& metadata = {{"format", "pt"}});

// Writes a .safetensors file whose tensors are known in advance and whose bytes arrive in any order
// and in any pieces. The file appears under its name in finish(); a writer destroyed before that
// leaves no file.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, std::vector<TensorPlan> plan,
                    const Metadata& metadata = {{"format", "pt"}});

  // Writes bytes of a tensor from `offset` on. Writing a byte twice is an error.
  void write(std::string_view name, std::span<const std::byte> bytes, std::uint64_t offset = 0);

  // fsyncs the file and gives it its name. Throws an error that names the tensor if bytes are
  // missing. The record's name is the file name without the folder.
  FileRecord finish();

  std::uint64_t size() const { return size_; }

 private:
  struct Slot {
    TensorPlace place;
    std::map<std::uint64_t, std::uint64_t> written;  // begin -> end of the ranges written so far
  };

  void mark_written(Slot& slot, std::uint64_t begin, std::uint64_t end);
  void put(std::uint64_t at, std::span<const std::byte> bytes);
  void digest_the_rest();

  std::string path_;
  std::vector<Slot> slots_;
  std::unordered_map<std::string_view, std::size_t> index_;
  std::uint64_t size_ = 0;
  std::optional<OutputFile> file_;  // created when its size is known
  FileDigest digest_;
  std::uint64_t digested_ = 0;  // length of the prefix that digest_ covers
};

}  // namespace mgpu::checkpoint
