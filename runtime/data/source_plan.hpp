#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/data/example.hpp"
#include "runtime/data/prepare.hpp"
#include "runtime/data/source_file.hpp"

namespace mgpu::data {

// One source file: how its rows are read, and where its pieces are cached.
struct SourcePlan {
  SourceFile file;
  Source source;
  Format format;
  RowReader reader;
  std::string key;
  std::filesystem::path folder;
  std::int64_t vocabulary;  // 0: unknown

  std::filesystem::path path_of(std::size_t piece) const;
  // The row of a block as an example. Throws std::runtime_error without the path.
  Example read(const Rows& row) const { return read(row.text()); }
  Example read(std::string_view row) const {
    return reader.read(mapped_row(mapping, file.syntax().parse(row)));
  }

  RowMapping mapping = {};
};

// Opens a file and detects the format of its rows. Throws std::runtime_error with the path.
SourcePlan plan_source(const Source& source, const PrepareOptions& options, const Encoder& encoder);

}  // namespace mgpu::data
