#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/data/dataset.hpp"
#include "runtime/data/encoder.hpp"
#include "runtime/data/format.hpp"
#include "runtime/data/row_range.hpp"

namespace mgpu::data {

struct Source {
  std::string path;
  double weight = 1;      // how many times an epoch contains its rows
  std::string type = {};  // of the file, if its name does not have the ending: csv, ...
  std::optional<RowOptions> rows = {};  // how its rows are read; nothing: as PrepareOptions says
  // Consecutive files with the same number are one dataset, of which `range` selects rows.
  std::size_t dataset = 0;
  // Consecutive files with the same number are one of the datasets that a mixture interleaves.
  std::size_t mixed_as = 0;
  RowRange range = {};
};

struct PrepareOptions {
  std::filesystem::path cache;  // a folder shared by all parts; created if missing
  RowOptions rows;
  std::int64_t max_length = 0;  // 0: no limit
  bool streamed = false;        // the digest of a file is not that of its whole contents
  bool skip_bad_rows = false;   // otherwise the first bad row is an error
  int threads = 0;              // of this part; 0: one per usable core

  // The work is divided among processes: this one is `part` of `parts`. `barrier` returns when all
  // parts have called it and is required if there are several parts. The caller decides how long it
  // waits.
  int part = 0, parts = 1;
  std::function<void()> barrier;
  // How long a file written by another part may take to become visible here (network file systems).
  std::chrono::milliseconds visible_within = std::chrono::seconds(30);
};

struct Prepared {
  Dataset dataset;
  std::vector<SourceReport> reports;  // one per source
};

// Tokenizes all files, or uses the cache of an earlier run. The pieces of a file are cached under
// the digest of its contents, the encoder and the options. A piece that is missing, torn or damaged
// is tokenized again. All parts return the same dataset. Throws for a file that cannot be read, for
// a bad row unless bad rows are skipped (the first of this part's rows), for a file whose rows are
// all bad, and if no example is left.
Prepared prepare(const std::vector<Source>& sources, const PrepareOptions& options,
                 const Encoder& encoder);

}  // namespace mgpu::data
