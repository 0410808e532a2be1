#include "runtime/train/training_state.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <stdexcept>

#include "rendezvous/base/input_error.hpp"
#include "runtime/train/file_copies.hpp"
#include "runtime/train/state_pieces.hpp"
#include "runtime/train/weights_io.hpp"

namespace mgpu::train {
namespace {

namespace fs = std::filesystem;
using ops::Moment;
using optim::FragmentState;
using optim::Optimizer;
using optim::StateVector;

constexpr const char* kFolder = "training_state";

std::string key_of(std::string_view vector, std::string_view tensor) {
  return fmt::format("{}/{}", vector, tensor);
}

// A piece that this rank saves: part of what it would own if the states were sharded, even if every
// rank holds all of them.
struct Piece {
  std::string key;  // NAME@BEGIN
  const FragmentState* state;
  std::int64_t from, size;  // within the state's tensors
};

std::vector<Piece> pieces_of(parallel::Shards& shards, const Optimizer& optimizer, int rank,
                             int world) {
  std::map<std::string, std::vector<const FragmentState*>> states;
  for (const auto& state : optimizer.states()) states[state.owned->fragment.name].push_back(&state);
  std::vector<Piece> pieces;
  for (const auto& part :
       parallel::owned_fragments(shards.layout(), shards.buckets(), rank, world, true)) {
    for (const auto* state : states[part.name]) {
      const auto& f = state->owned->fragment;
      if (part.tensor_begin < f.tensor_begin ||
          part.tensor_begin + part.size > f.tensor_begin + f.size) {
        continue;
      }
      pieces.push_back({fmt::format("{}@{}", part.name, part.tensor_begin), state,
                        part.tensor_begin - f.tensor_begin, part.size});
    }
  }
  return pieces;
}

checkpoint::TensorView view_of(const SavedPiece& saved, const checkpoint::TensorEntry& entry) {
  return {entry.dtype, entry.shape, saved.file->bytes(entry), saved.file->path(),
          &saved.file->file()};
}

at::Tensor tensor_of(const SavedPiece& saved, const checkpoint::TensorEntry& entry) {
  return tensor_over(view_of(saved, entry));
}

// Reads a saved piece; `table` decodes 8-bit codes.
Moment moment_of(const SavedPiece& saved, const at::Tensor& table) {
  Moment moment{tensor_of(saved, *saved.entry), {}, {}, 0};
  if (saved.entry->dtype != checkpoint::DType::u8) return moment;
  const auto* scales = saved.file->find(scales_name(saved.entry->name));
  moment.lead = saved.begin % ops::kMomentBlock;
  if (scales == nullptr || scales->dtype != checkpoint::DType::f32 ||
      scales->shape != std::vector{ops::moment_blocks(moment.lead, saved.size)}) {
    throw rendezvous::InputError(
        fmt::format("{}: {} has no matching scales", saved.file->path(), saved.entry->name));
  }
  moment.scales = tensor_of(saved, *scales);
  moment.table = table;
  return moment;
}

// The elements of a fragment that a saved piece has.
struct Overlap {
  const SavedPiece* saved;
  std::int64_t from, size;  // `from`: within the tensor
};

// The parts of all saved pieces that overlap a fragment. Throws if some of its elements are in
// none.
std::vector<Overlap> overlaps_of(const StateVector& vector, const parallel::Fragment& f,
                                 const PieceIndex& index) {
  std::vector<Overlap> overlaps;
  std::int64_t found_elements = 0;
  const auto found = index.find(key_of(vector.name, f.name));
  if (found != index.end()) {
    for (const auto& saved : found->second) {
      const auto from = std::max(saved.begin, f.tensor_begin);
      const auto end = std::min(saved.begin + saved.size, f.tensor_begin + f.size);
      if (from >= end) continue;
      overlaps.push_back({&saved, from, end - from});
      found_elements += end - from;
    }
  }
  if (found_elements != f.size) {
    throw rendezvous::InputError(fmt::format(
        "the training state is incomplete: {} of {} has {} of the {} elements from {} on",
        vector.name, f.name, found_elements, f.size, f.tensor_begin));
  }
  return overlaps;
}

// Decodes the parts, and encodes them as the optimizer stores them. With codes, a block's scale
// becomes the largest of the scales that the block had in the pieces. If the block had only one
// scale, its codes are restored as written; elements with a smaller scale are rounded to the new
// levels.
void convert(const StateVector& vector, const parallel::Fragment& f,
             const std::vector<Overlap>& overlaps) {
  const Moment& to = vector.stored;
  const auto table = vector.levels != nullptr ? vector.levels(at::kCPU) : at::Tensor();
  const auto lead = f.tensor_begin % ops::kMomentBlock;
  const auto values = at::empty({f.size}, at::kFloat);
  const auto scales = at::zeros({to.coded() ? to.scales.numel() : 0}, at::kFloat);
  for (const auto& [saved, from, size] : overlaps) {
    const auto at = from - f.tensor_begin;
    const auto part = part_of(moment_of(*saved, table), from - saved->begin, size);
    const auto decoded = ops::decode(part);
    values.narrow(0, at, size).copy_(decoded);
    if (!to.coded()) continue;
    const auto own =
        part.coded() ? part.scales : ops::block_scales(decoded, (lead + at) % ops::kMomentBlock);
    const auto here = scales.narrow(0, (lead + at) / ops::kMomentBlock, own.numel());
    here.copy_(at::maximum(here, own));
  }
  if (!to.coded()) {
    to.values.copy_(values);
    return;
  }
  const Moment host{at::empty({f.size}, at::kByte), at::empty_like(scales), table, lead};
  ops::encode_(host, values,
               scales);  // on the host: encoding needs more memory than a GPU has left
  to.values.copy_(host.values);
  to.scales.copy_(host.scales);
}

// Fills one vector of a fragment's state. Bytes that are stored as they were saved are copied by
// `copies` later.
void fill(const StateVector& vector, const parallel::Fragment& f, const PieceIndex& index,
          FileCopies& copies) {
  const Moment& to = vector.stored;
  const auto overlaps = overlaps_of(vector, f, index);
  const bool same = !to.coded() && std::ranges::all_of(overlaps, [&](const Overlap& part) {
    return FileCopies::can_copy(to.values, view_of(*part.saved, *part.saved->entry));
  });
  if (!same) {
    convert(vector, f, overlaps);
    return;
  }
  for (const auto& [saved, from, size] : overlaps)
    copies.add(to.values.narrow(0, from - f.tensor_begin, size), view_of(*saved, *saved->entry),
               from - saved->begin);
}

at::Device device_of(const Optimizer& optimizer) {
  const auto& states = optimizer.states();
  return states.empty() ? at::Device(at::kCPU) : states.front().owned->value.device();
}

}  // namespace

std::string training_state_file(int rank, int world) {
  return fmt::format("{}/rank-{:05}-of-{:05}.safetensors", kFolder, rank, world);
}

std::vector<NamedTensor> training_state_tensors(parallel::Shards& shards,
                                                const Optimizer& optimizer, int rank, int world) {
  std::vector<NamedTensor> tensors;
  for (const auto& piece : pieces_of(shards, optimizer, rank, world)) {
    for (const auto& vector : piece.state->vectors) {
      const auto name = key_of(vector.name, piece.key);
      const auto part = part_of(vector.stored, piece.from, piece.size);
      tensors.emplace_back(name, part.values);
      if (part.coded()) tensors.emplace_back(scales_name(name), part.scales);
    }
  }
  return tensors;
}

std::vector<checkpoint::TensorPlan> plan_of(const std::vector<NamedTensor>& tensors) {
  std::vector<checkpoint::TensorPlan> plan;
  for (const auto& [name, tensor] : tensors)
    plan.push_back({name, dtype_of(tensor.scalar_type()), {tensor.numel()}});
  return plan;
}

checkpoint::FileRecord write_training_state(const std::string& checkpoint_folder,
                                            parallel::Shards& shards, const Optimizer& optimizer,
                                            int rank, int world) {
  const auto path = fs::path(checkpoint_folder) / training_state_file(rank, world);
  fs::create_directories(path.parent_path());
  const auto tensors = training_state_tensors(shards, optimizer, rank, world);
  checkpoint::SafetensorsWriter writer(path, plan_of(tensors));
  for (const auto& [name, tensor] : tensors) {
    const auto host = tensor.to(at::kCPU).contiguous();
    writer.write(name, std::span(static_cast<const std::byte*>(host.const_data_ptr()),
                                 static_cast<std::size_t>(host.nbytes())));
  }
  auto record = writer.finish();
  record.name = training_state_file(rank, world);
  return record;
}

void read_training_state(const std::string& checkpoint_folder, Optimizer& optimizer) {
  std::vector<std::unique_ptr<checkpoint::SafetensorsFile>> files;
  const auto folder = fs::path(checkpoint_folder) / kFolder;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors")
      files.push_back(std::make_unique<checkpoint::SafetensorsFile>(entry.path()));
  const auto index = index_pieces(files);
  FileCopies copies(device_of(optimizer));
  for (const auto& state : optimizer.states())
    for (const auto& vector : state.vectors) fill(vector, state.owned->fragment, index, copies);
  copies.run();
  optimizer.use_loaded_state();
}

}  // namespace mgpu::train
