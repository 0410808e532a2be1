#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::checkpoint {

// A file mapped read-only while this object lives. If another process truncates the file, readers
// get SIGBUS (data::report_lost_pages() names the file then); replacing it by rename is safe.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }

  // Copies `part`, which lies within bytes(), to `to` without mapping its pages: that is faster for
  // bytes that are needed once, and a disk error throws instead of killing the process.
  void read(std::span<const std::byte> part, std::byte* to) const;

 private:
  std::string path_;
  rendezvous::UniqueFd fd_;
  std::span<const std::byte> bytes_;
};

// A file that appears under its name only when it is complete: it is written under a temporary name
// in the same folder, and commit() fsyncs and renames it. Without commit(), no file is left behind
// and an older file of that name is unchanged. Errors name the path and what to do.
class OutputFile {
 public:
  // Reserves the size at once if the file system supports it, so that a full disk is reported
  // early.
  explicit OutputFile(std::string path, std::uint64_t size = 0);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const;
  // Appends a whole file. If the file system supports it, the two share blocks until one changes.
  void copy_from(const std::string& path);
  void commit();

  const std::string& path() const { return path_; }

 private:
  [[noreturn]] void fail(const std::string& verb, int error) const;

  std::string path_, temporary_;
  rendezvous::UniqueFd fd_;
};

void write_file(const std::string& path, std::string_view bytes);  // through an OutputFile
std::string read_file(const std::string& path, std::size_t limit);
void copy_file(const std::string& from, const std::string& to);  // through an OutputFile

// Creates the folder if it does not exist. Throws an error that names it if it is not writable.
void make_writable_folder(const std::string& path);

// fsyncs the contents of a file, or the entries of a folder, so that they survive a power failure.
void sync_file(const std::string& path);
void sync_folder(const std::string& path);

// "cannot write PATH: No space left on device; free some space ...". For common errors, the message
// states what to do.
[[noreturn]] void throw_write_error(const std::string& verb, const std::string& path, int error);

std::string folder_of(const std::string& path);  // "." for a bare name
std::string human_size(std::uint64_t bytes);     // "5.00 GB"

std::span<const std::byte> bytes_of(std::string_view text);
std::string_view text_of(std::span<const std::byte> bytes);

}  // namespace mgpu::checkpoint
