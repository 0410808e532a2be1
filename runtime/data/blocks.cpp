#include "runtime/data/blocks.hpp"

#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"
#include "runtime/data/csv.hpp"

namespace mgpu::data {

namespace {

constexpr std::size_t kTextBlockBytes = std::size_t{2} << 20;
constexpr std::size_t kLongestRow = std::size_t{256} << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool has_columns(FileKind kind) {
  return kind == FileKind::csv || kind == FileKind::tsv;
}

constexpr std::string_view kWhite = " \t\r\n";

bool is_white(std::string_view text) {
  return text.find_first_not_of(kWhite) == text.npos;
}

}  // namespace

TextBlocks::TextBlocks(std::unique_ptr<ByteStream> bytes, const RowSyntax& syntax, std::string path,
                       std::uint64_t row_limit)
    : bytes_(std::move(bytes)), syntax_(syntax), path_(std::move(path)), row_limit_(row_limit) {}

void TextBlocks::fail(const std::string& what) const {
  throw rendezvous::InputError(fmt::format("{}:{}: {}", path_, number_, what));
}

bool TextBlocks::fill() {
  if (!no_more_bytes_) no_more_bytes_ = !bytes_->read(buffer_);
  return !no_more_bytes_;
}

// The end of the row that begins at `at` of the buffer, which grows as needed; `at` itself at the
// end of the file.
std::size_t TextBlocks::next_row_end(std::size_t at) {
  for (std::size_t read = 0;; read = buffer_.size() - at) {
    const auto rest = std::string_view(buffer_).substr(at);
    if (const auto end = syntax_.row_end(rest, no_more_bytes_); end != rest.npos) return at + end;
    if (no_more_bytes_) return at;
    if (rest.size() > kLongestRow)
      fail(fmt::format("the row has more than {} MiB", kLongestRow >> 20));
    // Twice as much each time, because a row is searched from its beginning.
    do fill();
    while (!no_more_bytes_ && buffer_.size() - at < 2 * read);
  }
}

void TextBlocks::begin() {
  begun_ = true;
  while (buffer_.size() < kByteOrderMark.size() && fill()) {
  }
  if (buffer_.starts_with(kByteOrderMark)) buffer_.erase(0, kByteOrderMark.size());
  if (syntax_.kind == FileKind::json_array) skip_list_start();
  if (!has_columns(syntax_.kind)) return;
  for (std::size_t at = 0;;) {  // up to the row with the names
    const std::size_t end = next_row_end(at);
    const auto row = std::string_view(buffer_).substr(at, end - at);
    number_ += line_feeds_in(row);
    const bool blank = !row.empty() && syntax_.is_blank(row);
    at = end;
    if (blank && at < kTextBlockBytes) continue;
    buffer_.erase(0, at);
    at = 0;
    if (!blank) return;
  }
}

void TextBlocks::skip_list_start() {
  while (is_white(buffer_)) {
    buffer_.clear();
    if (!fill()) break;
  }
  const auto start = buffer_.find_first_not_of(kWhite);
  if (start == buffer_.npos || buffer_[start] != '[') fail("not a JSON list");
  buffer_.erase(0, start + 1);
}

// Checks the last row of a list and what follows it.
void TextBlocks::end_list(std::string_view row) {
  const bool blank = syntax_.is_blank(row);
  if (!row.ends_with(']')) fail("the JSON list has no end; the file is truncated");
  if (blank && rows_ > 0) fail("expected a row behind the comma");
  std::string rest =
      buffer_.substr(static_cast<std::size_t>(row.data() + row.size() - buffer_.data()));
  do {
    if (!is_white(rest)) fail("unexpected content behind the JSON list");
    rest.clear();
  } while (bytes_->read(rest));
  ended_ = true;
}

bool TextBlocks::next(Block& block) {
  if (!begun_) begin();
  const bool is_list = syntax_.kind == FileKind::json_array;
  std::uint64_t first = number_;
  std::size_t at = 0;
  bool has_rows = false;
  while (!ended_ && at < kTextBlockBytes && (row_limit_ == 0 || rows_ < row_limit_)) {
    const std::size_t end = next_row_end(at);
    const auto row = std::string_view(buffer_).substr(at, end - at);
    const bool blank = syntax_.is_blank(row);
    // A bracket may be part of a row that ends with the file.
    if (is_list && no_more_bytes_ && end == buffer_.size() &&
        syntax_.row_end(row, false) == row.npos)
      fail("the JSON list has no end; the file is truncated");
    if (is_list && !row.ends_with(',')) {
      end_list(row);
    } else if (is_list && blank) {
      fail("expected a row before the comma");
    } else if (row.empty()) {
      ended_ = true;
    }
    at = end;
    number_ += syntax_.counts_lines() ? line_feeds_in(row) : 1;
    if (!blank) {
      ++rows_;
      has_rows = true;
    } else if (!has_rows && at >= kTextBlockBytes) {
      buffer_.erase(0, at);
      at = 0;
      first = number_;
    }
  }
  if (!has_rows) return false;
  block = {.index = index_++, .first = first, .text = buffer_.substr(0, at)};
  buffer_.erase(0, at);
  return true;
}

void read_columns(ByteStream& bytes, const std::string& path, RowSyntax& syntax) {
  if (!has_columns(syntax.kind)) return;
  std::string text;
  std::uint64_t number = 1;
  bool more = true;
  while (more && text.size() < kByteOrderMark.size()) more = bytes.read(text);
  for (std::size_t at = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;;) {
    const auto rest = std::string_view(text).substr(at);
    const std::size_t end = syntax.row_end(rest, !more);
    if (end == rest.npos) {
      if (!more) return;  // without rows
      if (rest.size() > kLongestRow)
        throw rendezvous::InputError(fmt::format("{}:{}: the first row has no end", path, number));
      // Twice as much each time, because a row is searched from its beginning.
      const std::size_t wanted = 2 * rest.size();
      text.erase(0, at);
      at = 0;
      do more = bytes.read(text);
      while (more && text.size() < wanted);
      continue;
    }
    std::string_view row = rest.substr(0, end);
    if (syntax.is_blank(row)) {
      number += line_feeds_in(row);
      at += end;
      continue;
    }
    for (const char c : {'\n', '\r'})
      if (row.ends_with(c)) row.remove_suffix(1);
    try {
      syntax.columns = csv_columns(row, syntax.kind == FileKind::tsv ? '\t' : ',');
    } catch (const RowError& e) {
      throw rendezvous::InputError(fmt::format("{}:{}: {}", path, number, e.what()));
    }
    return;
  }
}

}  // namespace mgpu::data
