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

// A tensor that is to be written.
struct TensorPlan {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;

  friend bool operator==(const TensorPlan&, const TensorPlan&) = default;
};

// A tensor of a file. Its bytes are [begin, end) of the data behind the header.
struct TensorEntry {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::size_t begin = 0, end = 0;
};

// What the header says, once it has been found to be true of a file of that length.
struct SafetensorsLayout {
  std::vector<TensorEntry> entries;  // in the order of their bytes
  Metadata metadata;
  std::size_t data_begin = 0;
};

// Checks everything about the bytes of a file but the values: entries lie within it, without
// holes or overlaps, and are as long as dtype and shape say. Throws naming file and tensor.
SafetensorsLayout read_layout(std::span<const std::byte> file, const std::string& name);

// A .safetensors file, mapped read-only. Tensors may lie at any address: copy, do not cast.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<TensorEntry>& entries() const { return layout_.entries; }
  const Metadata& metadata() const { return layout_.metadata; }
  const TensorEntry* find(std::string_view name) const;
  std::span<const std::byte> bytes(const TensorEntry& entry) const;

 private:
  MappedFile file_;
  SafetensorsLayout layout_;
  std::unordered_map<std::string_view, std::size_t> index_;  // names are those of layout_
};

// What became of a file that was written: for the manifest.
struct FileRecord {
  std::string name;  // relative to the checkpoint's folder
  std::uint64_t size = 0;
  std::string digest;

  friend bool operator==(const FileRecord&, const FileRecord&) = default;
};

// Writes a .safetensors file whose tensors are known beforehand, and whose bytes come in any order
// and in any pieces. Types of longer elements come first, so that all are aligned. The file
// appears under its name with finish(); a writer that goes without it leaves nothing.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, std::vector<TensorPlan> plan,
                    const Metadata& metadata = {{"format", "pt"}});

  // Bytes of a tensor from `offset` on. Bytes that were written before are an error.
  void write(std::string_view name, std::span<const std::byte> bytes, std::uint64_t offset = 0);

  // Makes the file durable under its name. Throws, naming the tensor, if bytes are missing. The
  // record's name is the file's without its folder.
  FileRecord finish();

  std::uint64_t size() const { return size_; }

 private:
  struct Slot {
    TensorPlan plan;
    std::uint64_t begin = 0, end = 0;                // within the file
    std::map<std::uint64_t, std::uint64_t> written;  // begin -> end, of what is there
  };

  void lay_out(std::vector<TensorPlan> plan, const Metadata& metadata);
  void mark_written(Slot& slot, std::uint64_t begin, std::uint64_t end);
  void put(std::uint64_t at, std::span<const std::byte> bytes);
  void digest_the_rest();

  std::string path_, header_;
  std::vector<Slot> slots_;
  std::unordered_map<std::string_view, std::size_t> index_;
  std::uint64_t size_ = 0;
  std::optional<OutputFile> file_;  // once it is known how long it gets
  Digest digest_;
  std::uint64_t digested_ = 0;  // the file's first bytes that digest_ has seen
};

}  // namespace mgpu::checkpoint
