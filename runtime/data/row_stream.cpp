#include "runtime/data/row_stream.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"

namespace mgpu::data {

namespace {

enum StreamPurpose : std::uint64_t { kMix = 21, kCopies = 22 };

// Blocks of about 2 MiB until the pages of a file are given back.
constexpr std::size_t kBlocksKept = 8;

// Uniform in [0, 1).
double fraction_of(Random& random) {
  return static_cast<double>(random.next() >> 11) * 0x1p-53;
}

}  // namespace

// The rows of one file.
class FileRows {
 public:
  explicit FileRows(const SourceFile& file) : file_(file), reader_(file.blocks()) {}

  bool next() {
    while (!rows_ || !rows_->next()) {
      if (++blocks_ % kBlocksKept == 0) file_.unload();
      if (!reader_->next(block_)) return false;
      file_.require_unchanged();
      rows_.emplace(file_.syntax(), block_.text);
    }
    return true;
  }
  std::uint64_t number() const { return block_.first + rows_->offset(); }
  std::string_view text() const { return rows_->text(); }

 private:
  const SourceFile& file_;
  std::unique_ptr<BlockReader> reader_;
  std::size_t blocks_ = 0;
  Block block_;
  std::optional<Rows> rows_;
};

void check_streamable(const std::string& path, const RowRange& range) {
  if (range.percent || range.from.value_or(0) < 0 || range.to.value_or(0) < 0)
    throw rendezvous::InputError(
        fmt::format("{}: the slice of its split needs the number of rows, which streaming does not "
                    "know; use numbers from the beginning such as train[:1000], or streaming: "
                    "false",
                    path));
}

// The rows of one dataset of a mixture, which are those of consecutive files, with their slices and
// weights.
class MixedRows {
 public:
  MixedRows(const std::vector<SourcePlan>& plans, std::size_t first, std::size_t end,
            std::uint64_t seed, std::int64_t pass)
      : plans_(plans), first_(first), end_(end), seed_(seed), pass_(pass), at_(first) {}

  void restart() {
    at_ = first_;
    rows_ = 0;
    total_ = 0;
    copies_ = 0;
    file_.reset();
  }

  bool next(StreamRow& row) {
    while (copies_ == 0) {
      if (!advance()) return false;
      copies_ = copies_of_row();
    }
    --copies_;
    row.source = at_;
    row.number = file_->number();
    row.text = file_->text();
    return true;
  }

 private:
  // Goes to the next row within the slices.
  bool advance() {
    for (; at_ < end_; ++at_, file_.reset()) {
      if (at_ > first_ && !file_ && plans_[at_].source.dataset != plans_[at_ - 1].source.dataset)
        rows_ = 0;
      const RowRange& range = plans_[at_].source.range;
      const auto from = static_cast<std::uint64_t>(range.from.value_or(0));
      const bool has_end = range.to || range.most > 0;
      const std::uint64_t limit = range.row_limit();
      if (has_end && rows_ >= limit) continue;
      if (!file_) file_.emplace(plans_[at_].file);
      while ((!has_end || rows_ < limit) && file_->next()) {
        ++total_;
        if (rows_++ >= from) return true;
      }
    }
    return false;
  }

  std::uint64_t copies_of_row() const {
    const double weight = plans_[at_].source.weight;
    const double whole = std::floor(weight);
    auto copies = static_cast<std::uint64_t>(whole);
    if (weight == whole) return copies;
    Random random({seed_, kCopies, static_cast<std::uint64_t>(pass_), first_, total_});
    return copies + (fraction_of(random) < weight - whole ? 1 : 0);
  }

  const std::vector<SourcePlan>& plans_;
  std::size_t first_, end_;
  std::uint64_t seed_;
  std::int64_t pass_;
  std::size_t at_;            // the file
  std::uint64_t rows_ = 0;    // read of the part of the dataset that a slice counts
  std::uint64_t total_ = 0;   // read of all files
  std::uint64_t copies_ = 0;  // of the last row, that are still to be returned
  std::optional<FileRows> file_;
};

RowStream::RowStream(const std::vector<SourcePlan>& plans, const Mixture& mixture,
                     std::uint64_t seed, std::int64_t pass)
    : plans_(plans),
      strategy_(mixture.strategy),
      random_({seed, kMix, static_cast<std::uint64_t>(pass)}) {
  for (std::size_t first = 0, end = 0; first < plans.size(); first = end) {
    for (; end < plans.size() && plans[end].source.mixed_as == plans[first].source.mixed_as; ++end)
      check_streamable(plans[end].source.path, plans[end].source.range);
    datasets_.push_back(std::make_unique<MixedRows>(plans, first, end, seed, pass));
  }
  was_read_.assign(datasets_.size(), false);
  if (strategy_ != MixStrategy::concat)
    probabilities_ = probabilities_of(mixture, datasets_.size());
}

RowStream::~RowStream() = default;

bool RowStream::next(StreamRow& row) {
  return strategy_ == MixStrategy::concat ? next_of_all(row) : next_of_mixture(row);
}

bool RowStream::next_of_all(StreamRow& row) {
  for (; current_ < datasets_.size(); ++current_)
    if (datasets_[current_]->next(row)) return true;
  return false;
}

std::size_t RowStream::choose() {
  const bool once = strategy_ == MixStrategy::interleave_once;
  double sum = 0;
  for (std::size_t i = 0; i < datasets_.size(); ++i)
    if (!once || !was_read_[i]) sum += probabilities_[i];
  double left = fraction_of(random_) * sum;
  std::size_t chosen = 0;
  for (std::size_t i = 0; i < datasets_.size(); ++i) {
    if (once && was_read_[i]) continue;
    chosen = i;
    if (left < probabilities_[i]) break;
    left -= probabilities_[i];
  }
  return chosen;
}

bool RowStream::next_of_mixture(StreamRow& row) {
  const auto all_read = [&] {
    return std::find(was_read_.begin(), was_read_.end(), false) == was_read_.end();
  };
  while (!all_read()) {
    const std::size_t chosen = choose();
    if (datasets_[chosen]->next(row)) return true;
    was_read_[chosen] = true;
    if (strategy_ == MixStrategy::interleave_under) {
      was_read_.assign(was_read_.size(), true);
    } else if (strategy_ == MixStrategy::interleave_over && !all_read()) {
      datasets_[chosen]->restart();
      if (datasets_[chosen]->next(row)) return true;
      throw rendezvous::InputError(
          fmt::format("dataset {} of {} has no rows, so it cannot be interleaved", chosen + 1,
                      datasets_.size()));
    }
  }
  return false;
}

}  // namespace mgpu::data
