#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/data/file_format.hpp"
#include "runtime/data/mapped_file.hpp"

namespace mgpu::data {

// The contents of a file from its beginning to its end, decompressed in memory of constant size.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Appends the next bytes, at most about a mebibyte; returns false at the end. Throws
  // std::runtime_error with the path if the compressed data is truncated or damaged.
  virtual bool read(std::string& out) = 0;
};

// `bytes` must outlive the stream; `path` is for messages.
std::unique_ptr<ByteStream> open_bytes(std::string_view bytes, Compression compression,
                                       const std::string& path);

}  // namespace mgpu::data
