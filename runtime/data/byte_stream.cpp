#include "runtime/data/byte_stream.hpp"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"

namespace mgpu::data {

namespace {

constexpr std::size_t kChunk = std::size_t{1} << 20;

[[noreturn]] void throw_truncated(const std::string& path) {
  throw rendezvous::InputError(fmt::format(
      "{} is truncated: its compressed data has no end; copy or download it again", path));
}

[[noreturn]] void throw_damaged(const std::string& path, std::size_t at, const char* why) {
  throw rendezvous::InputError(
      fmt::format("{} is damaged near byte {}: {}; copy or download it again", path, at,
                  why ? why : "invalid compressed data"));
}

class PlainStream : public ByteStream {
 public:
  explicit PlainStream(std::string_view bytes) : rest_(bytes) {}

  bool read(std::string& out) override {
    const std::string_view chunk = rest_.substr(0, kChunk);
    rest_.remove_prefix(chunk.size());
    out += chunk;
    return !chunk.empty();
  }

 private:
  std::string_view rest_;
};

// A file of gzip may consist of several members, one after another.
class GzipStream : public ByteStream {
 public:
  GzipStream(std::string_view bytes, std::string path)
      : bytes_(bytes), rest_(bytes), path_(std::move(path)) {
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&zlib_, MAX_WBITS + kGzipOnly) != Z_OK)
      throw std::runtime_error("cannot start zlib: out of memory");
  }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;
  ~GzipStream() override { inflateEnd(&zlib_); }

  bool read(std::string& out) override {
    const std::size_t before = out.size();
    out.resize(before + kChunk);
    std::size_t made = 0;
    while (made < kChunk && !ended_)
      made += inflate_some(out.data() + before + made, kChunk - made);
    out.resize(before + made);
    return made > 0;
  }

 private:
  std::size_t inflate_some(char* to, std::size_t size) {
    const std::size_t given = std::min<std::size_t>(rest_.size(), std::numeric_limits<uInt>::max());
    zlib_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest_.data()));
    zlib_.avail_in = static_cast<uInt>(given);
    zlib_.next_out = reinterpret_cast<Bytef*>(to);
    zlib_.avail_out = static_cast<uInt>(size);
    const int status = inflate(&zlib_, Z_NO_FLUSH);
    rest_.remove_prefix(given - zlib_.avail_in);
    if (status == Z_STREAM_END) {
      begin_next_member();
    } else if (status == Z_BUF_ERROR && rest_.empty()) {
      throw_truncated(path_);
    } else if (status != Z_OK) {
      throw_damaged(path_, bytes_.size() - rest_.size(), zlib_.msg);
    }
    return size - zlib_.avail_out;
  }

  void begin_next_member() {
    // Archives on tapes and disks are padded with zeros.
    if (rest_.find_first_not_of('\0') == rest_.npos) {
      ended_ = true;
    } else if (inflateReset(&zlib_) != Z_OK) {
      throw_damaged(path_, bytes_.size() - rest_.size(), zlib_.msg);
    }
  }

  std::string_view bytes_, rest_;
  std::string path_;
  z_stream zlib_{};
  bool ended_ = false;
};

class ZstdStream : public ByteStream {
 public:
  ZstdStream(std::string_view bytes, std::string path)
      : input_{bytes.data(), bytes.size(), 0}, path_(std::move(path)), zstd_(ZSTD_createDStream()) {
    if (!zstd_) throw std::runtime_error("cannot start zstd: out of memory");
    // Files made with `zstd --long=31` need as much memory as they announce, up to 2 GiB.
    ZSTD_DCtx_setParameter(zstd_.get(), ZSTD_d_windowLogMax, 31);
  }

  bool read(std::string& out) override {
    const std::size_t before = out.size();
    out.resize(before + kChunk);
    ZSTD_outBuffer output{out.data() + before, kChunk, 0};
    while (output.pos < output.size && (input_.pos < input_.size || inside_frame_)) {
      const std::size_t consumed = input_.pos, made = output.pos;
      const std::size_t status = ZSTD_decompressStream(zstd_.get(), &output, &input_);
      if (ZSTD_isError(status)) throw_damaged(path_, consumed, ZSTD_getErrorName(status));
      inside_frame_ = status != 0;
      if (inside_frame_ && input_.pos == input_.size && output.pos < output.size &&
          input_.pos == consumed && output.pos == made)
        throw_truncated(path_);
    }
    out.resize(before + output.pos);
    return output.pos > 0;
  }

 private:
  struct Free {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };

  ZSTD_inBuffer input_;
  std::string path_;
  std::unique_ptr<ZSTD_DStream, Free> zstd_;
  bool inside_frame_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> open_bytes(std::string_view bytes, Compression compression,
                                       const std::string& path) {
  switch (compression) {
    case Compression::gzip:
      return std::make_unique<GzipStream>(bytes, path);
    case Compression::zstd:
      return std::make_unique<ZstdStream>(bytes, path);
    case Compression::none:
      break;
  }
  return std::make_unique<PlainStream>(bytes);
}

}  // namespace mgpu::data
