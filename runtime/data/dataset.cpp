#include "runtime/data/dataset.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

namespace mgpu::data {

std::uint64_t TokenizedSource::size() const {
  std::uint64_t count = 0;
  for (const Shard& shard : shards) count += shard.size();
  return count;
}

Dataset::Dataset(std::vector<TokenizedSource> sources, std::int64_t max_length,
                 std::span<SourceReport> reports) {
  const std::size_t longest = max_length > 0 ? static_cast<std::size_t>(max_length)
                                             : std::numeric_limits<std::int32_t>::max();
  for (std::size_t s = 0; s < sources.size(); ++s) {
    SourceReport& report = reports[s];
    SourceRange range{.first = size(), .weight = sources[s].weight, .index = s};
    std::uint64_t row = 0;
    for (std::size_t p = 0; p < sources[s].shards.size(); ++p) {
      Shard& shard = sources[s].shards[p];
      for (std::size_t i = 0; i < shard.size(); ++i, ++row) {
        if (row < sources[s].first_row || row >= sources[s].last_row) {
          ++report.unused;
          continue;
        }
        const std::size_t whole = shard[i].ids.size();
        const std::size_t length = std::min(whole, longest);
        const std::uint32_t labels = shard.label_count(i, length);
        if (labels == 0) {
          ++report.dropped;
          continue;
        }
        if (length < whole) ++report.truncated;
        locations_.push_back(
            {static_cast<std::uint32_t>(shards_.size()), static_cast<std::uint32_t>(i)});
        lengths_.push_back(static_cast<std::uint32_t>(length));
        target_counts_.push_back(labels);
        report.tokens += length;
        target_tokens_ += labels;
      }
      shards_.push_back(std::move(shard));
      first_lines_.push_back(sources[s].first_lines[p]);
      paths_.push_back(sources[s].path);
    }
    if (lengths_.size() > std::numeric_limits<std::uint32_t>::max())
      throw std::runtime_error("the dataset has more than 4294967295 examples");
    range.count = size() - range.first;
    report.kept = range.count;
    tokens_ += report.tokens;
    ranges_.push_back(range);
  }
}

Sequence Dataset::operator[](std::uint32_t i) const {
  const Location location = locations_[i];
  Sequence sequence = shards_[location.shard][location.index];
  sequence.ids = sequence.ids.first(lengths_[i]);
  return sequence;
}

std::string Dataset::where(std::uint32_t i) const {
  const Location location = locations_.at(i);
  return fmt::format("{}:{}", paths_[location.shard],
                     first_lines_[location.shard] + shards_[location.shard].line(location.index));
}

}  // namespace mgpu::data
