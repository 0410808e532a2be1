#include "runtime/data/columnar_blocks.hpp"

#include <stdexcept>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"
#include "runtime/data/load_columnar.hpp"

namespace mgpu::data {

namespace {

constexpr std::size_t kBlockBytes = std::size_t{2} << 20;

[[noreturn]] void fail(const MgpuColumnarError& error, const std::string& text) {
  if (error.is_of_system) throw std::runtime_error(text);
  throw rendezvous::InputError(text);
}

MgpuColumnarReader* open_reader(const MgpuColumnarPlugin& plugin, const std::string& path,
                                FileKind kind) {
  MgpuColumnarError error{};
  auto* const reader = plugin.open(path.c_str(), kind == FileKind::parquet, &error);
  if (reader == nullptr)
    fail(error,
         fmt::format("cannot read {} as {}: {}", path, name_of(kind), printable(error.text, 400)));
  return reader;
}

}  // namespace

ColumnarBlocks::ColumnarBlocks(const std::string& path, FileKind kind, std::uint64_t row_limit)
    : path_(path),
      row_limit_(row_limit),
      plugin_(columnar_plugin(path, name_of(kind))),
      reader_(open_reader(plugin_, path, kind), plugin_.close) {}

bool ColumnarBlocks::next(Block& block) {
  block = {.index = index_, .first = rows_ + 1};
  while (block.text.size() < kBlockBytes && (row_limit_ == 0 || rows_ < row_limit_)) {
    MgpuColumnarRows rows{};
    MgpuColumnarError error{};
    const int status = plugin_.next(reader_.get(), &rows, &error);
    if (status < 0)
      fail(error, fmt::format("{} is damaged behind row {}: {}; copy or download it again", path_,
                              rows_, printable(error.text, 400)));
    if (status == 0) break;
    for (std::string_view text(rows.text, rows.size);
         !text.empty() && (row_limit_ == 0 || rows_ < row_limit_); ++rows_) {
      block.text += take_line(text);
      block.text += '\n';
    }
  }
  if (block.text.empty()) return false;
  ++index_;
  return true;
}

}  // namespace mgpu::data
