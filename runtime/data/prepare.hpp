#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/data/dataset.hpp"
#include "runtime/data/encoder.hpp"
#include "runtime/data/format.hpp"

namespace mgpu::data {

struct Source {
  std::string path;
  double weight = 1;  // how many times its rows are seen in an epoch
};

struct PrepareOptions {
  std::filesystem::path cache;  // a folder that all parts see; made if it is not there
  RowOptions rows;
  std::int64_t max_length = 0;  // 0: no limit
  bool skip_bad_rows = false;   // else the first is an error
  int threads = 0;              // of this part; 0: one a usable core

  // The work is divided among processes: this one is `part` of `parts`. `barrier` returns when all
  // parts have called it; needed where there are several. How long it waits is the caller's affair.
  int part = 0, parts = 1;
  std::function<void()> barrier;
  // How long a file that another part has written may take to be seen here (network file systems).
  std::chrono::milliseconds seen_within = std::chrono::seconds(30);
};

struct Prepared {
  Dataset dataset;
  std::vector<SourceReport> reports;  // one a source
};

// Tokenises all files, or takes what an earlier run left in the cache: the pieces of a file lie
// under the digest of its contents, the encoder and the options, and a piece that is missing, torn
// or damaged is made anew. All parts return the same data set. Throws for files that cannot be
// read, a bad row (unless they are skipped: the first of this part's in the order of the rows), a
// file whose rows are all bad, and data that leaves no example.
Prepared prepare(const std::vector<Source>& sources, const PrepareOptions& options,
                 const Encoder& encoder);

}  // namespace mgpu::data
