#include "runtime/data/source_file.hpp"

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/data/columnar_blocks.hpp"
#include "runtime/data/digest.hpp"
#include "runtime/data/parallel.hpp"

namespace mgpu::data {

namespace {

constexpr std::size_t kSmallestPiece = std::size_t{256} << 10;
constexpr std::size_t kLargestPiece = std::size_t{64} << 20;
constexpr std::size_t kPieces = 256;  // target for files between the two sizes
constexpr std::uint64_t kOtherSeed = 0x5851F42D4C957F2D;
constexpr std::string_view kBom = "\xEF\xBB\xBF";

std::size_t piece_size(std::size_t bytes) {
  return std::clamp(bytes / kPieces, kSmallestPiece, kLargestPiece);
}

// SHA-256 of the whole file would be 10 times slower on CPUs without SHA instructions, and
// collisions between a user's own files are not an attack.
std::string digest_of_piece(std::string_view piece) {
  return fmt::format("{:016x}{:016x}", checksum(piece), checksum(piece, kOtherSeed));
}

std::string digest_of_all(std::size_t bytes, const std::vector<std::string>& pieces) {
  return sha256(fmt::format("{}{}", bytes, fmt::join(pieces, "")));
}

std::string digest_of_all(std::string_view bytes) {
  const std::size_t size = piece_size(bytes.size());
  std::vector<std::string> pieces{digest_of_piece(bytes.substr(0, size))};
  for (std::size_t at = size; at < bytes.size(); at += size)
    pieces.push_back(digest_of_piece(bytes.substr(at, size)));
  return digest_of_all(bytes.size(), pieces);
}

// The start of the first line that begins at or after a cut.
std::size_t line_start(std::string_view bytes, std::size_t cut) {
  if (cut == 0) return bytes.starts_with(kBom) ? kBom.size() : 0;
  const std::size_t end = bytes.find('\n', cut - 1);
  return end == bytes.npos ? bytes.size() : end + 1;
}

// Of the size, the first and the last mebibyte.
std::string digest_of_ends(std::string_view bytes) {
  constexpr std::size_t kEnd = std::size_t{1} << 20;
  return sha256(
      fmt::format("ends of {}:{}{}", bytes.size(), digest_of_piece(bytes.substr(0, kEnd)),
                  digest_of_piece(bytes.substr(bytes.size() - std::min(kEnd, bytes.size())))));
}

}  // namespace

SourceFile::SourceFile(const std::string& path, int threads, const FileOptions& options)
    : path_(path),
      options_(options),
      format_(format_of_file(path, options.type)),
      file_(path),
      syntax_(std::make_unique<RowSyntax>(RowSyntax{.kind = format_.kind})),
      compared_(std::make_unique<Compared>()) {
  if (options_.streamed)
    digest_ = digest_of_ends(file_.bytes());
  else
    cut(threads);
  if (!has_lines_as_rows(format_.kind) || format_.compression != Compression::none ||
      options_.row_limit > 0)
    first_lines_.clear();
  if (is_columnar(format_.kind)) {
    syntax_->kind = FileKind::jsonl;
    skipped_columns_ = ColumnarBlocks(path_, format_.kind, 0).skipped();
    return;
  }
  read_columns(*open_bytes(file_.bytes(), format_.compression, path_), path_, *syntax_);
}

// Computes the digest, and where pieces begin if the rows are lines.
void SourceFile::cut(int threads) {
  const std::string_view bytes = file_.bytes();
  const std::size_t size = piece_size(bytes.size());
  const std::size_t pieces = std::max<std::size_t>(1, (bytes.size() + size - 1) / size);

  std::vector<std::string> digests(pieces);
  starts_.assign(pieces + 1, bytes.size());
  first_lines_.assign(pieces, 0);
  for_each_index(pieces, threads, [&](std::size_t i) {
    const std::string_view block = bytes.substr(i * size, size);
    digests[i] = digest_of_piece(block);
    starts_[i] = line_start(bytes, i * size);
    first_lines_[i] = line_feeds_in(block);
  });

  std::uint64_t line_feeds = 0;  // before the cut
  for (std::size_t i = 0; i < pieces; ++i) {
    const bool cuts_a_line = i > 0 && bytes[i * size - 1] != '\n';
    line_feeds += std::exchange(first_lines_[i], 1 + line_feeds + (cuts_a_line ? 1 : 0));
  }
  digest_ = digest_of_all(bytes.size(), digests);
}

std::string_view SourceFile::piece(std::size_t index) const {
  return file_.bytes().substr(starts_[index], starts_[index + 1] - starts_[index]);
}

// Appended rows change nothing, and neither does a new time of the same contents. Of a streamed
// file only the ends can be compared, which shows no more than that rows were appended.
void SourceFile::require_unchanged() const {
  const auto& mapped = file_.stamp();
  const auto now = FileStamp::of(path_);
  if (now == mapped) return;
  const std::scoped_lock lock(compared_->mutex);
  if (now && now == compared_->stamp) return;
  const bool columnar = is_columnar(format_.kind);  // the plug-in opens the file by name again
  const bool replaced = !now || !now->is_same_file(mapped);
  if (replaced && !columnar) return;
  const bool grew = !replaced && !columnar && now->size > mapped.size;
  const bool same_size = !replaced && now->size == mapped.size;
  const auto bytes = file_.bytes();
  if (options_.streamed ? grew && digest_of_ends(bytes) == digest_
                        : (grew || same_size) && digest_of_all(bytes) == digest_) {
    compared_->stamp = now;
    return;
  }
  throw std::runtime_error(fmt::format(
      "another program changed {} while it was read; start again when the file is complete",
      path_));
}

std::unique_ptr<BlockReader> SourceFile::blocks() const {
  if (is_columnar(format_.kind))
    return std::make_unique<ColumnarBlocks>(path_, format_.kind, options_.row_limit);
  return std::make_unique<TextBlocks>(open_bytes(file_.bytes(), format_.compression, path_),
                                      *syntax_, path_, options_.row_limit);
}

void SourceFile::for_each_row(
    const std::function<bool(std::uint64_t number, const Rows& row)>& use) const {
  const auto reader = blocks();
  Block block;
  while (reader->next(block)) {
    require_unchanged();
    for (Rows rows(*syntax_, block.text); rows.next();)
      if (!use(block.first + rows.offset(), rows)) return;
  }
}

std::vector<std::uint64_t> for_each_block(const SourceFile& file, int threads,
                                          const std::function<bool(std::size_t index)>& is_wanted,
                                          const std::function<void(const Block&)>& use) {
  std::vector<std::uint64_t> firsts;
  if (file.has_pieces()) {
    std::vector<std::size_t> wanted;
    for (std::size_t i = 0; i < file.pieces(); ++i) {
      firsts.push_back(file.first_line(i));
      if (is_wanted(i)) wanted.push_back(i);
    }
    for_each_index(wanted.size(), threads, [&](std::size_t i) {
      const Block block{wanted[i], file.first_line(wanted[i]), std::string(file.piece(wanted[i]))};
      file.require_unchanged();
      use(block);
    });
    return firsts;
  }
  std::mutex mutex;
  const auto reader = file.blocks();
  bool more = true;
  // Each call uses one block, and ends the loop of its thread when there is none.
  std::exception_ptr error;
  std::size_t error_index = 0;
  const auto count = static_cast<std::size_t>(threads > 0 ? threads : usable_cores());
  for_each_index(count, static_cast<int>(count), [&](std::size_t) {
    Block block;
    while (true) {
      {
        const std::lock_guard lock(mutex);
        do {
          try {
            more = more && !error && reader->next(block);
            if (more) file.require_unchanged();
          } catch (...) {
            more = false;
            if (!error) {  // a block with a lower index may still fail
              error = std::current_exception();
              error_index = firsts.size();
            }
          }
          if (!more) return;
          firsts.push_back(block.first);
        } while (!is_wanted(block.index));
      }
      try {
        use(block);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error || block.index < error_index) {
          error = std::current_exception();
          error_index = block.index;
        }
      }
    }
  });
  if (error) std::rethrow_exception(error);
  return firsts;
}

}  // namespace mgpu::data
