#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace mgpu::data {

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
  // Stops counting the pages that were read as memory of this process. They are read again when
  // they are needed.
  void unload() const noexcept;

 private:
  const char* start_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace mgpu::data
