#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/shard.hpp"

namespace mgpu::data {

// What became of the rows of one file. rows = bad + dropped + the examples that are kept.
struct SourceReport {
  std::string path;
  std::string format;
  std::uint64_t rows = 0;
  std::uint64_t bad = 0;        // skipped
  std::uint64_t dropped = 0;    // without a label within max_length
  std::uint64_t truncated = 0;  // cut to max_length, and kept
  std::uint64_t lost = 0;       // whose prompt lost its end, see Example
  std::uint64_t kept = 0;
  std::uint64_t tokens = 0;           // of the kept, after cutting
  std::vector<std::string> bad_rows;  // the first few: "file:line: what"
  std::string lost_prompt;            // the first: "file:line: text"
  std::vector<std::string> notes;     // for the person to see
};

// Examples lie one behind the other in the order of the files and of their rows.
struct SourceRange {
  std::uint32_t first = 0, count = 0;
  double weight = 1;
  std::uint64_t index = 0;  // of its file in the reports
};

// One file as it was tokenised: its shards, in order, and the first line of each.
struct TokenizedSource {
  std::string path;
  double weight = 1;
  std::vector<Shard> shards;
  std::vector<std::uint64_t> first_lines;
};

// The examples of all files, cut to max_length; those that keep no label are left out. Nothing
// changes after construction: threads may share it.
class Dataset {
 public:
  // max_length 0: as long as they are. Fills kept, dropped, truncated and tokens of the reports,
  // one a source.
  Dataset(std::vector<TokenizedSource> sources, std::int64_t max_length,
          std::span<SourceReport> reports);

  std::uint32_t size() const { return static_cast<std::uint32_t>(lengths_.size()); }
  Sequence operator[](std::uint32_t i) const;
  std::span<const std::uint32_t> lengths() const { return lengths_; }
  std::span<const std::uint32_t> label_counts() const { return label_counts_; }
  std::span<const SourceRange> ranges() const { return ranges_; }
  std::uint64_t tokens() const { return tokens_; }
  std::uint64_t labels() const { return labels_; }
  // "file:line" of an example.
  std::string where(std::uint32_t i) const;

 private:
  struct Place {
    std::uint32_t shard, index;
  };

  std::vector<Shard> shards_;
  std::vector<std::uint64_t> first_lines_;  // of each shard
  std::vector<std::string> paths_;          // of each shard's file
  std::vector<Place> places_;
  std::vector<std::uint32_t> lengths_, label_counts_;
  std::vector<SourceRange> ranges_;
  std::uint64_t tokens_ = 0, labels_ = 0;
};

}  // namespace mgpu::data
