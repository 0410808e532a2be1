#include "runtime/data/source_file.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "runtime/data/digest.hpp"
#include "runtime/data/parallel.hpp"

namespace mgpu::data {

namespace {

constexpr std::size_t kBlock = std::size_t{4} << 20;
constexpr std::size_t kSmallestPiece = std::size_t{256} << 10;
constexpr std::size_t kLargestPiece = std::size_t{64} << 20;
constexpr std::size_t kPieces = 1024;  // aimed at for files between the two
constexpr std::string_view kBom = "\xEF\xBB\xBF";

}  // namespace

SourceFile::SourceFile(const std::string& path, int threads) : path_(path) {
  refuse_other_formats(path);
  file_ = MappedFile(path);
  const std::string_view bytes = file_.bytes();
  piece_bytes_ = std::clamp(bytes.size() / kPieces, kSmallestPiece, kLargestPiece);

  const std::size_t blocks = bytes.size() / kBlock + 1;
  std::vector<std::string> digests(blocks);
  line_feeds_.assign(blocks + 1, 0);
  for_each_index(blocks, threads, [&](std::size_t i) {
    const std::string_view block = bytes.substr(i * kBlock, kBlock);
    digests[i] = sha256(block);
    line_feeds_[i + 1] = static_cast<std::uint64_t>(std::count(block.begin(), block.end(), '\n'));
  });
  std::string all;
  for (std::size_t i = 0; i < blocks; ++i) {
    all += digests[i];
    line_feeds_[i + 1] += line_feeds_[i];
  }
  digest_ = sha256(all);
}

std::size_t SourceFile::pieces() const {
  return std::max<std::size_t>(1, (file_.bytes().size() + piece_bytes_ - 1) / piece_bytes_);
}

// Where the first line begins that starts at or behind the nominal cut.
std::size_t SourceFile::start_of(std::size_t piece) const {
  const std::string_view bytes = file_.bytes();
  if (piece == 0) return bytes.starts_with(kBom) ? kBom.size() : 0;
  const std::size_t cut = piece * piece_bytes_;
  if (cut >= bytes.size()) return bytes.size();
  const std::size_t end = bytes.find('\n', cut - 1);
  return end == bytes.npos ? bytes.size() : end + 1;
}

std::string_view SourceFile::piece(std::size_t index) const {
  const std::size_t begin = start_of(index);
  return file_.bytes().substr(begin, start_of(index + 1) - begin);
}

std::uint64_t SourceFile::first_line(std::size_t index) const {
  const std::size_t begin = start_of(index);
  const std::size_t block = begin / kBlock;
  const std::string_view before = file_.bytes().substr(block * kBlock, begin - block * kBlock);
  return 1 + line_feeds_[block] +
         static_cast<std::uint64_t>(std::count(before.begin(), before.end(), '\n'));
}

}  // namespace mgpu::data
