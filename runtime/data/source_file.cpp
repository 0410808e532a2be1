#include "runtime/data/source_file.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "runtime/data/digest.hpp"
#include "runtime/data/parallel.hpp"

namespace mgpu::data {

namespace {

constexpr std::size_t kSmallestPiece = std::size_t{256} << 10;
constexpr std::size_t kLargestPiece = std::size_t{64} << 20;
constexpr std::size_t kPieces = 256;  // target for files between the two sizes
constexpr std::uint64_t kOtherSeed = 0x5851F42D4C957F2D;
constexpr std::string_view kBom = "\xEF\xBB\xBF";

std::uint64_t line_feeds_in(std::string_view text) {
  std::uint64_t count = 0;
  for (std::size_t at = text.find('\n'); at != text.npos; at = text.find('\n', at + 1)) ++count;
  return count;
}

// The start of the first line that begins at or after a cut.
std::size_t line_start(std::string_view bytes, std::size_t cut) {
  if (cut == 0) return bytes.starts_with(kBom) ? kBom.size() : 0;
  const std::size_t end = bytes.find('\n', cut - 1);
  return end == bytes.npos ? bytes.size() : end + 1;
}

}  // namespace

SourceFile::SourceFile(const std::string& path, int threads) : path_(path) {
  refuse_other_formats(path);
  file_ = MappedFile(path);
  const std::string_view bytes = file_.bytes();
  const std::size_t size = std::clamp(bytes.size() / kPieces, kSmallestPiece, kLargestPiece);
  const std::size_t pieces = std::max<std::size_t>(1, (bytes.size() + size - 1) / size);

  std::vector<std::string> digests(pieces);
  starts_.assign(pieces + 1, bytes.size());
  first_lines_.assign(pieces, 0);
  for_each_index(pieces, threads, [&](std::size_t i) {
    const std::string_view block = bytes.substr(i * size, size);
    // SHA-256 of the whole file would be 10 times slower on CPUs without SHA instructions, and
    // collisions between a user's own files are not an attack.
    digests[i] = fmt::format("{:016x}{:016x}", checksum(block), checksum(block, kOtherSeed));
    starts_[i] = line_start(bytes, i * size);
    first_lines_[i] = line_feeds_in(block);
  });

  std::string all = std::to_string(bytes.size());
  std::uint64_t line_feeds = 0;  // before the cut
  for (std::size_t i = 0; i < pieces; ++i) {
    all += digests[i];
    const bool cuts_a_line = i > 0 && bytes[i * size - 1] != '\n';
    line_feeds += std::exchange(first_lines_[i], 1 + line_feeds + (cuts_a_line ? 1 : 0));
  }
  digest_ = sha256(all);
}

std::string_view SourceFile::piece(std::size_t index) const {
  return file_.bytes().substr(starts_[index], starts_[index + 1] - starts_[index]);
}

}  // namespace mgpu::data
