#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/mixture.hpp"
#include "runtime/data/random.hpp"
#include "runtime/data/source_plan.hpp"

namespace mgpu::data {

// A row of a stream that is not parsed yet.
struct StreamRow {
  std::size_t source = 0;    // its file among the plans
  std::uint64_t number = 0;  // of its line or row
  std::string text;
};

class MixedRows;

// The rows of one pass over all files in the order of a stream, read as they are needed. The order
// depends on the files, the mixture, the seed and the pass only.
class RowStream {
 public:
  // The plans must outlive it. Throws std::runtime_error for a slice that needs the number of rows.
  RowStream(const std::vector<SourcePlan>& plans, const Mixture& mixture, std::uint64_t seed,
            std::int64_t pass);
  ~RowStream();

  // Returns false at the end of the pass. Throws std::runtime_error for a file that is damaged.
  bool next(StreamRow& row);

 private:
  bool next_of_all(StreamRow& row);
  bool next_of_mixture(StreamRow& row);
  std::size_t choose();

  const std::vector<SourcePlan>& plans_;
  MixStrategy strategy_;
  std::vector<double> probabilities_;
  std::vector<std::unique_ptr<MixedRows>> datasets_;
  std::vector<bool> was_read_;  // once, to its end
  std::size_t current_ = 0;     // with concat
  Random random_;
};

// Throws std::runtime_error if a slice cannot be read without knowing the number of rows.
void check_streamable(const std::string& path, const RowRange& range);

}  // namespace mgpu::data
