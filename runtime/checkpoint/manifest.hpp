#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/safetensors.hpp"

namespace mgpu::checkpoint {

inline constexpr const char* kManifestName = "manifest.json";

// What a checkpoint folder holds. The file is written last: a folder that has it is whole, and
// its checksums tell whether it still is what was written.
struct Manifest {
  std::int64_t step = 0;
  std::map<std::string, std::string> versions;  // of programs and formats: "mgpu-train": "0.1.0"
  std::vector<FileRecord> files;                // names are relative, '/' between folders

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// The text ends with a checksum over itself, so that a flipped bit in it is found as well.
std::string manifest_text(const Manifest& manifest);
Manifest parse_manifest(std::string_view text, const std::string& file);
Manifest read_manifest(const std::string& folder);

// The record of a file that is there already.
FileRecord record_of(const std::string& folder, const std::string& name);

// Reads every file of a checkpoint, several at a time, and throws naming the first that is
// missing, of another length or changed since it was saved.
Manifest verify(const std::string& folder, int threads = 1);

}  // namespace mgpu::checkpoint
