#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/safetensors.hpp"

namespace mgpu::checkpoint {

inline constexpr const char* kManifestName = "manifest.json";

// The contents of a checkpoint folder. The manifest is written last, so a folder with a manifest
// was complete; its checksums show whether the files are still as written.
struct Manifest {
  std::int64_t step = 0;
  std::map<std::string, std::string> versions;  // of programs and formats, as "mgpu-train": "0.1.0"
  std::vector<FileRecord> files;                // relative paths, separated by '/'

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// The text contains its own checksum, so that a flipped bit in it is detected too.
std::string manifest_text(const Manifest& manifest);
Manifest parse_manifest(std::string_view text, const std::string& file);
Manifest read_manifest(const std::string& folder);

// The record of an existing file.
FileRecord record_of(const std::string& folder, const std::string& name);

// Reads every file of a checkpoint, several blocks in parallel. Throws an error that names the
// first file that is missing, has another size or has changed since it was saved.
Manifest verify(const std::string& folder, int threads = 1);

}  // namespace mgpu::checkpoint
