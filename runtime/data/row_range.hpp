#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mgpu::data {

// Some rows of a dataset, as in `train[10:20%]` of the library `datasets`, and at most `most` of
// them. Negative numbers count from the end.
struct RowRange {
  std::optional<std::int64_t> from = {}, to = {};
  bool percent = false;
  std::int64_t most = 0;  // 0: all

  bool is_all() const { return !from && !to && most == 0; }
  // The first and the last row + 1, of `rows`. Throws std::runtime_error if there are too few.
  std::pair<std::uint64_t, std::uint64_t> of(std::uint64_t rows) const;
  // No row behind this number is needed; 0: that depends on how many there are.
  std::uint64_t row_limit() const;

  friend bool operator==(const RowRange&, const RowRange&) = default;
};

struct SplitPart {
  std::string name;  // of the split
  RowRange range = {};

  friend bool operator==(const SplitPart&, const SplitPart&) = default;
};

// Parses `train`, `train[:10%]` and `train[:100]+test`. Throws std::runtime_error for anything
// else.
std::vector<SplitPart> parse_split(const std::string& text);

}  // namespace mgpu::data
