#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/shard.hpp"

namespace mgpu::data {

// What happened to the rows of one file: rows = bad + unused + dropped + kept.
struct SourceReport {
  std::string path;
  std::string digest;  // SHA-256 of the file's contents
  std::string format;
  std::uint64_t rows = 0;
  std::uint64_t bad = 0;              // bad rows that were skipped
  std::uint64_t unused = 0;           // not in the slice of the split, or above max_samples
  std::uint64_t dropped = 0;          // without a target token within max_length
  std::uint64_t truncated = 0;        // cut to max_length and kept
  std::uint64_t lost = 0;             // rows whose prompt lost its end; see Example::lost_prompt
  std::uint64_t unwritten_tools = 0;  // rows with tools that the chat template does not write
  std::uint64_t kept = 0;
  std::uint64_t tokens = 0;           // of the kept examples, after cutting
  std::vector<std::string> bad_rows;  // the first few: "file:line: reason"
  std::string lost_prompt;            // the first of `lost`: "file:line: text"
  std::vector<std::string> notes;     // to show to the user
};

// The examples of one file within the dataset, which has the examples in the order of files and
// rows.
struct SourceRange {
  std::uint32_t first = 0, count = 0;
  double weight = 1;
  std::uint64_t index = 0;  // of the file in the reports
};

// One tokenized file: its shards in order, and the first line of each.
struct TokenizedSource {
  std::string path;
  double weight = 1;
  std::vector<Shard> shards;
  std::vector<std::uint64_t> first_lines;
  // The examples of the shards that are used, counted over all of them.
  std::uint64_t first_row = 0, last_row = std::numeric_limits<std::uint64_t>::max();

  std::uint64_t size() const;  // examples of the shards
};

// The examples of all files, cut to max_length. Examples without a target token after the cut are
// left out. Immutable after construction, so threads may share it.
class Dataset {
 public:
  // max_length 0: no limit. Fills the fields kept, dropped, truncated and tokens of the reports;
  // there is one report per source.
  Dataset(std::vector<TokenizedSource> sources, std::int64_t max_length,
          std::span<SourceReport> reports);

  std::uint32_t size() const { return static_cast<std::uint32_t>(lengths_.size()); }
  Sequence operator[](std::uint32_t i) const;
  std::span<const std::uint32_t> lengths() const { return lengths_; }
  std::span<const std::uint32_t> target_counts() const { return target_counts_; }
  std::span<const SourceRange> ranges() const { return ranges_; }
  std::uint64_t tokens() const { return tokens_; }
  std::uint64_t target_tokens() const { return target_tokens_; }
  // "file:line" of an example.
  std::string where(std::uint32_t i) const;

 private:
  struct Location {
    std::uint32_t shard, index;
  };

  std::vector<Shard> shards_;
  std::vector<std::uint64_t> first_lines_;  // of each shard
  std::vector<std::string> paths_;          // of each shard's file
  std::vector<Location> locations_;
  std::vector<std::uint32_t> lengths_, target_counts_;
  std::vector<SourceRange> ranges_;
  std::uint64_t tokens_ = 0, target_tokens_ = 0;
};

}  // namespace mgpu::data
