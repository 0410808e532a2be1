// Bytes as a file of rows: CSV, TSV, JSON lists, lines and text, plain or compressed. Rows must not
// depend on the sizes of the reads. The first byte selects format, compression and size.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/data/blocks.hpp"

using namespace mgpu::data;

namespace {

// Of contents, because compressed data can be long: a bad row takes some 20 us under the
// sanitizers.
constexpr std::size_t kMostBytes = 1 << 16;

void require(bool what) {
  if (!what) std::abort();
}

// Passes on a few bytes at a time, and only so many.
class ShortReads : public ByteStream {
 public:
  ShortReads(std::unique_ptr<ByteStream> from, std::size_t size)
      : from_(std::move(from)), size_(size) {}

  bool read(std::string& out) override {
    const std::size_t wanted = std::min(size_, kMostBytes - total_);
    while (held_.size() - at_ < wanted) {
      held_.erase(0, at_);
      at_ = 0;
      if (!from_->read(held_)) break;
    }
    const auto few = std::string_view(held_).substr(at_, wanted);
    out += few;
    at_ += few.size();
    total_ += few.size();
    return !few.empty();
  }

 private:
  std::unique_ptr<ByteStream> from_;
  std::size_t size_, total_ = 0;
  std::size_t at_ = 0;  // of the bytes that come next
  std::string held_;
};

// Every row or its error, and the error of the file.
std::vector<std::string> rows_in(std::string_view bytes, const FileFormat& format,
                                 std::size_t size) {
  const auto open = [&] {
    return std::make_unique<ShortReads>(open_bytes(bytes, format.compression, "f"), size);
  };
  std::vector<std::string> rows;
  RowSyntax syntax{.kind = format.kind};
  try {
    read_columns(*open(), "f", syntax);
    TextBlocks blocks(open(), syntax, "f", 0);
    std::uint64_t last = 0;
    for (Block block; blocks.next(block);) {
      require(block.first >= last);
      for (Rows row(syntax, block.text); row.next();) {
        last = block.first + row.offset();
        try {
          rows.push_back(std::to_string(last) + row.parse().dump());
        } catch (const RowError& e) {
          require(std::string_view(e.what()).find('\n') == std::string_view::npos);
          rows.push_back(std::to_string(last) + e.what());
        }
      }
    }
  } catch (const std::runtime_error& e) {
    rows.emplace_back(e.what());
  }
  return rows;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size == 0) return 0;
  constexpr FileKind kKinds[] = {FileKind::csv, FileKind::tsv, FileKind::json_array,
                                 FileKind::jsonl, FileKind::text};
  constexpr Compression kCompressions[] = {Compression::none, Compression::gzip, Compression::zstd};
  const FileFormat format{.kind = kKinds[bytes[0] % 5],
                          .compression = kCompressions[bytes[0] / 5 % 3]};
  const std::string_view contents(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  const std::size_t few = 1 + bytes[0] / 15;
  const auto rows = rows_in(contents, format, few), others = rows_in(contents, format, kMostBytes);
  // Damage behind a bad row is met first or later.
  require(format.compression != Compression::none || rows == others);
  return 0;
}
