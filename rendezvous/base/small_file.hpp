#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace mgpu::rendezvous {

// What reading a small file gave.
struct SmallFile {
  enum class State { complete, absent, unreadable, not_regular, too_large };

  State state = State::complete;
  int error = 0;     // errno, if the file is absent or unreadable
  std::string text;  // all of it; of a file that is too large the first bytes, up to the limit

  bool complete() const { return state == State::complete; }
};

// Which files to read: all kinds, such as a pipe from a shell, or only regular files; others are
// refused without waiting for a writer. Regular files of /proc and /sys have no known size.
enum class FileKind { any, regular };

// Reads a file of at most `limit` bytes. Does not throw.
SmallFile read_small_file(const std::string& path, std::size_t limit,
                          FileKind kind = FileKind::any);

// The same for an open file, from its current position. `state` is not absent.
SmallFile read_small_file(int fd, std::size_t limit);

// A file of /proc or /sys; nullopt: it cannot be read.
std::optional<std::string> read_kernel_file(const std::string& path);

}  // namespace mgpu::rendezvous
