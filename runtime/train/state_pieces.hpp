#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/safetensors.hpp"

// The pieces of a saved training state, whose names training_state.hpp describes. Does not need
// LibTorch.
namespace mgpu::train {

// A saved piece: which elements of its tensor it has, and where it is stored.
struct SavedPiece {
  std::int64_t begin = 0, size = 0;
  const checkpoint::SafetensorsFile* file = nullptr;
  const checkpoint::TensorEntry* entry = nullptr;
};
using PieceIndex = std::map<std::string, std::vector<SavedPiece>>;  // "kind/NAME" -> pieces

// Reads the name and shape of an entry of `path`. Throws if it is not a piece.
std::string piece_of(const checkpoint::TensorEntry& entry, const std::string& path,
                     SavedPiece& piece);

// The pieces of all files, sorted by their begin. Throws if two pieces of a tensor overlap. The
// files must outlive the index.
PieceIndex index_pieces(const std::vector<std::unique_ptr<checkpoint::SafetensorsFile>>& files);

// The name of the tensor with the scales of 8-bit values.
std::string scales_name(std::string_view values_name);

}  // namespace mgpu::train
