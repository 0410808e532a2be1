#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::checkpoint {

// A file as its bytes, read-only, for as long as this lives. Whoever truncates the file meanwhile
// kills its readers with SIGBUS; files that are replaced by rename are safe.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

// A file that appears under its name only when it is whole: it is written beside it under a
// temporary name, and commit() makes it durable and renames it. Without commit() nothing is left
// behind and an older file of that name is as it was. Errors name the path and what to do.
class OutputFile {
 public:
  // Reserves the size at once where the file system can, so that a full disk is told early.
  explicit OutputFile(std::string path, std::uint64_t size = 0);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const;
  // Appends a whole file; where the file system can, the two share their blocks until one changes.
  void copy_from(const std::string& path);
  void commit();

  const std::string& path() const { return path_; }

 private:
  [[noreturn]] void fail(const std::string& verb, int error) const;

  std::string path_, temporary_;
  rendezvous::UniqueFd fd_;
};

void write_file(const std::string& path, std::string_view bytes);  // by way of an OutputFile
std::string read_file(const std::string& path, std::size_t limit);
void copy_file(const std::string& from, const std::string& to);  // by way of an OutputFile

// Makes the folder if it is not there. Throws, naming it, if nothing can be written into it.
void make_writable_folder(const std::string& path);

// What was written into the file, or which names were given to the folder, survives a power cut.
void sync_file(const std::string& path);
void sync_folder(const std::string& path);

// "cannot write PATH: No space left on device; free some space ...". Of the errors that people
// meet when they save, says what to do.
[[noreturn]] void throw_write_error(const std::string& verb, const std::string& path, int error);

std::string folder_of(const std::string& path);  // "." for a bare name
std::string human_size(std::uint64_t bytes);     // "5.00 GB"

std::span<const std::byte> bytes_of(std::string_view text);
std::string_view text_of(std::span<const std::byte> bytes);

}  // namespace mgpu::checkpoint
