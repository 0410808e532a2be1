#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace mgpu::data {

// Which file it is, and what changes with its contents.
struct FileStamp {
  std::uint64_t device = 0, inode = 0;
  std::int64_t size = 0, seconds = 0, nanoseconds = 0;  // and the time of the last change

  // Of the file that has this name now; nothing if there is none.
  static std::optional<FileStamp> of(const std::filesystem::path& path);
  bool is_same_file(const FileStamp& other) const {
    return device == other.device && inode == other.inode;
  }
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

// A regular file, mapped read-only and unmapped when destroyed. Views into it are valid as long as
// it lives. Throws if the file cannot be opened, or is a folder or a device.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::string_view bytes() const { return {start_, size_}; }
  // Of the file when it was mapped.
  const FileStamp& stamp() const { return stamp_; }
  // Stops counting the pages that were read as memory of this process. They are read again when
  // they are needed.
  void unload() const noexcept;

 private:
  const char* start_ = nullptr;
  std::size_t size_ = 0;
  FileStamp stamp_;
};

}  // namespace mgpu::data
