#pragma once

#include <filesystem>
#include <stdexcept>

#include "rendezvous/base/input_error.hpp"

namespace mgpu::tests {

// Whether it throws an error that another attempt may not meet, and not one of the input.
template <class Work>
bool fails_for_now(const Work& work) {
  try {
    work();
  } catch (const rendezvous::InputError&) {
    return false;
  } catch (const std::runtime_error&) {
    return true;
  }
  return false;
}

// Makes looking for `path` fail with ELOOP, in the place of a disk's error.
inline void make_unreadable(const std::filesystem::path& path) {
  std::filesystem::create_directory_symlink(path.filename(), path);
}

}  // namespace mgpu::tests
