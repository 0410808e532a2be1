#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "runtime/checkpoint/safetensors.hpp"

namespace mgpu::checkpoint {

// A file whose bytes are all in memory.
struct FileImage {
  std::string name;  // relative to the checkpoint's folder
  std::span<const std::byte> bytes;
};

// Writes files into a folder that exists, with several threads: each takes a block of kDigestBlock
// bytes, computes its checksum and writes it. The space of all files is reserved first, so that a
// full disk is reported early, and all bytes are written and fsynced before a file gets its name.
// Returns the records of the files; nullopt if a stop was requested before that. Then, and after an
// error until that, no file is left behind.
std::optional<std::vector<FileRecord>> write_images(const std::string& folder,
                                                    const std::vector<FileImage>& images,
                                                    int threads, const std::stop_token& stop = {});

}  // namespace mgpu::checkpoint
