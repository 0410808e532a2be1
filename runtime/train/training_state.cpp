#include "runtime/train/training_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <memory>
#include <stdexcept>

#include "runtime/train/weights_io.hpp"

namespace mgpu::train {
namespace {

namespace fs = std::filesystem;
using optim::AdamW;

constexpr const char* kFolder = "training_state";

struct Kind {
  const char* name;
  at::Tensor AdamW::State::* tensor;
};
constexpr Kind kKinds[] = {{"master", &AdamW::State::master},
                           {"first", &AdamW::State::first},
                           {"second", &AdamW::State::second}};

// This rank's part of the work of saving: what it would own if the states were spread, also when
// everybody has all of them.
struct Piece {
  std::string key;  // without the kind
  AdamW::State* state;
  std::int64_t from, size;  // within the state's tensors
};

std::vector<Piece> pieces_of(parallel::Shards& shards, AdamW& optimizer, int rank, int world) {
  std::map<std::string, std::vector<AdamW::State*>> states;
  for (auto& state : optimizer.states()) states[state.owned->fragment.name].push_back(&state);
  std::vector<Piece> pieces;
  for (const auto& part :
       parallel::owned_fragments(shards.layout(), shards.buckets(), rank, world, true)) {
    for (auto* state : states[part.name]) {
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

// Where a saved piece lies in its tensor.
struct Saved {
  std::int64_t begin, size;
  const checkpoint::SafetensorsFile* file;
  const checkpoint::TensorEntry* entry;
};
using Index = std::map<std::string, std::vector<Saved>>;  // "kind/NAME" -> pieces

Index index_of(const std::vector<std::unique_ptr<checkpoint::SafetensorsFile>>& files) {
  Index index;
  for (const auto& file : files) {
    for (const auto& entry : file->entries()) {
      const auto at = entry.name.rfind('@');
      std::int64_t begin = 0;
      const auto* end = entry.name.data() + entry.name.size();
      if (at == std::string::npos || entry.shape.size() != 1 ||
          std::from_chars(entry.name.data() + at + 1, end, begin).ptr != end) {
        throw std::runtime_error(
            fmt::format("{}: {} is no piece of a training state", file->path(), entry.name));
      }
      index[entry.name.substr(0, at)].push_back({begin, entry.shape[0], file.get(), &entry});
    }
  }
  return index;
}

void fill(const std::string& kind, const AdamW::State& state, const at::Tensor& to,
          const Index& index) {
  const auto& f = state.owned->fragment;
  std::int64_t filled = 0;
  const auto found = index.find(kind + "/" + f.name);
  if (found != index.end()) {
    for (const auto& saved : found->second) {
      const auto from = std::max(saved.begin, f.tensor_begin);
      const auto end = std::min(saved.begin + saved.size, f.tensor_begin + f.size);
      if (from >= end) continue;
      const auto value = tensor_over({saved.entry->dtype, saved.entry->shape,
                                      saved.file->bytes(*saved.entry), saved.file->path()});
      to.narrow(0, from - f.tensor_begin, end - from)
          .copy_(value.narrow(0, from - saved.begin, end - from));
      filled += end - from;
    }
  }
  if (filled != f.size) {
    throw std::runtime_error(
        fmt::format("the training state lacks {} of {}: {} of its {} elements from {} on are there",
                    kind, f.name, filled, f.size, f.tensor_begin));
  }
}

}  // namespace

checkpoint::FileRecord write_training_state(const std::string& checkpoint_folder,
                                            parallel::Shards& shards, AdamW& optimizer, int rank,
                                            int world) {
  const auto folder = fs::path(checkpoint_folder) / kFolder;
  fs::create_directories(folder);
  const auto pieces = pieces_of(shards, optimizer, rank, world);
  std::vector<checkpoint::TensorPlan> plan;
  for (const auto& piece : pieces)
    for (const auto& kind : kKinds)
      plan.push_back({fmt::format("{}/{}", kind.name, piece.key),
                      dtype_of((piece.state->*kind.tensor).scalar_type()),
                      {piece.size}});
  checkpoint::SafetensorsWriter writer(
      folder / fmt::format("rank-{:05}-of-{:05}.safetensors", rank, world), std::move(plan));
  for (const auto& piece : pieces) {
    for (const auto& kind : kKinds) {
      const auto host =
          (piece.state->*kind.tensor).narrow(0, piece.from, piece.size).to(at::kCPU).contiguous();
      writer.write(fmt::format("{}/{}", kind.name, piece.key),
                   std::span(static_cast<const std::byte*>(host.const_data_ptr()),
                             static_cast<std::size_t>(host.nbytes())));
    }
  }
  auto record = writer.finish();
  record.name = fmt::format("{}/{}", kFolder, record.name);
  return record;
}

void read_training_state(const std::string& checkpoint_folder, AdamW& optimizer) {
  std::vector<std::unique_ptr<checkpoint::SafetensorsFile>> files;
  const auto folder = fs::path(checkpoint_folder) / kFolder;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors")
      files.push_back(std::make_unique<checkpoint::SafetensorsFile>(entry.path()));
  const auto index = index_of(files);
  for (auto& state : optimizer.states())
    for (const auto& kind : kKinds) fill(kind.name, state, state.*kind.tensor, index);
  optimizer.publish_master();
}

}  // namespace mgpu::train
