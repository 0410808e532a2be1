#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace mgpu::data {

// A regular file, mapped to be read; unmapped when destroyed. Views into it live as long as it.
// Throws where the file cannot be opened, or is a folder or a device.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::string_view bytes() const { return {start_, size_}; }

 private:
  const char* start_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace mgpu::data
