#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/checkpoint/safetensors.hpp"

namespace mgpu::checkpoint {

// A tensor that a model requires.
struct TensorShape {
  std::string name;
  std::vector<std::int64_t> shape;

  friend bool operator==(const TensorShape&, const TensorShape&) = default;
};

// A tensor of a folder. Valid as long as the Weights it came from.
struct TensorView {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
  std::string file;  // that contains it
  const MappedFile* source = nullptr;
};

// The weight_map of a model.safetensors.index.json: tensor -> file in the same folder. Throws an
// error that names the problem; file names outside the folder are rejected.
std::map<std::string, std::string> parse_weight_index(std::string_view text,
                                                      const std::string& file);

// All tensors of a folder in Hugging Face's layout: one model.safetensors, or shards with an index.
// Files are mapped, so a tensor is read when its bytes are accessed.
class Weights {
 public:
  // `stem`: "model", or "adapter_model" for PEFT's.
  explicit Weights(const std::string& folder, const std::string& stem = "model");

  std::optional<TensorView> find(std::string_view name) const;
  // Throw an error with the tensor and the folder if it is missing or has another shape.
  TensorView get(std::string_view name) const;
  TensorView get(const TensorShape& expected) const;
  // The same, and throws if the elements are not floating-point numbers of at least 16 bits.
  TensorView get_floats(const TensorShape& expected) const;

  std::vector<std::string> names() const;  // sorted
  const std::vector<SafetensorsFile>& files() const { return files_; }

 private:
  void open_shards(const std::string& index);
  void add(SafetensorsFile file, const std::map<std::string, std::string>* wanted);

  std::string folder_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, std::pair<std::size_t, const TensorEntry*>> where_;
};

inline constexpr std::uint64_t kShardSize = 5'000'000'000;

// Splits tensors into shards, in the given order. A shard is closed before it would exceed
// `longest` bytes; a tensor larger than that gets its own shard.
std::vector<std::vector<TensorPlan>> split_shards(std::vector<TensorPlan> plan,
                                                  std::uint64_t longest);

// A file of a model, and the tensors in it.
struct WeightsFile {
  std::string name;
  std::vector<TensorPlan> tensors;
};

// The files of a model in Hugging Face's layout: STEM.safetensors, or shards of at most `longest`
// bytes. Shards need an index, STEM.safetensors.index.json: the name of this file and its text.
std::vector<WeightsFile> weights_files(std::vector<TensorPlan> plan,
                                       std::uint64_t longest = kShardSize,
                                       const std::string& stem = "model");
std::string weight_index_name(const std::string& stem);
std::string weight_index_text(const std::vector<WeightsFile>& files);

// Writes a folder that Weights and transformers can read. Reserves all files at once, so that a
// full disk is reported before anything is computed.
class WeightsWriter {
 public:
  WeightsWriter(std::string folder, std::vector<TensorPlan> plan,
                std::uint64_t longest_shard = kShardSize, const std::string& stem = "model");

  void write(std::string_view name, std::span<const std::byte> bytes, std::uint64_t offset = 0);

  // Gives the files their names, the index last. Returns the records for the manifest.
  std::vector<FileRecord> finish();

 private:
  std::string folder_, stem_;
  std::string index_;  // empty: the model is in one file
  std::vector<std::unique_ptr<SafetensorsWriter>> files_;
  std::map<std::string, std::size_t, std::less<>> shard_of_;
};

}  // namespace mgpu::checkpoint
