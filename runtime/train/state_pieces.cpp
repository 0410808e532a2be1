#include "runtime/train/state_pieces.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <string_view>

#include "rendezvous/base/input_error.hpp"
#include "runtime/checkpoint/json_text.hpp"

namespace mgpu::train {
namespace {

constexpr std::string_view kScales = "_scales";

// The scales of a piece are named after its first element, but are one per block of elements.
bool is_of_scales(std::string_view key) {
  return key.substr(0, key.find('/')).ends_with(kScales);
}

void check_overlaps(std::vector<SavedPiece>& pieces, const std::string& key) {
  std::ranges::sort(pieces, {}, &SavedPiece::begin);
  std::int64_t end = 0;
  for (const SavedPiece& piece : pieces) {
    if (piece.size == 0) continue;
    if (piece.begin < end)
      throw rendezvous::InputError(fmt::format("{}: {}: two pieces have element {}",
                                               piece.file->path(), checkpoint::in_quotes(key),
                                               piece.begin));
    end = piece.begin + piece.size;
  }
}

}  // namespace

std::string scales_name(std::string_view values_name) {
  const auto slash = std::min(values_name.find('/'), values_name.size());
  return std::string(values_name).insert(slash, kScales);
}

std::string piece_of(const checkpoint::TensorEntry& entry, const std::string& path,
                     SavedPiece& piece) {
  const auto& name = entry.name;
  const auto at = name.rfind('@');
  const auto* const end = name.data() + name.size();
  const auto number = at == name.npos ? std::from_chars_result{nullptr, std::errc::invalid_argument}
                                      : std::from_chars(name.data() + at + 1, end, piece.begin);
  if (number.ptr != end || number.ec != std::errc() || entry.shape.size() != 1 || piece.begin < 0 ||
      entry.shape[0] > INT64_MAX - piece.begin)
    throw rendezvous::InputError(fmt::format("{}: {} is not a piece of a training state", path,
                                             checkpoint::in_quotes(name)));
  piece.size = entry.shape[0];
  return name.substr(0, at);
}

PieceIndex index_pieces(const std::vector<std::unique_ptr<checkpoint::SafetensorsFile>>& files) {
  PieceIndex index;
  for (const auto& file : files)
    for (const auto& entry : file->entries()) {
      SavedPiece piece{.file = file.get(), .entry = &entry};
      const auto key = piece_of(entry, file->path(), piece);
      index[key].push_back(piece);
    }
  for (auto& [key, pieces] : index)
    if (!is_of_scales(key)) check_overlaps(pieces, key);
  return index;
}

}  // namespace mgpu::train
