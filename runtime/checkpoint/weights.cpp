#include "runtime/checkpoint/weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "rendezvous/base/file_presence.hpp"
#include "rendezvous/base/input_error.hpp"
#include "runtime/checkpoint/json_text.hpp"

namespace mgpu::checkpoint {

namespace fs = std::filesystem;
using rendezvous::is_folder;
using rendezvous::is_there;

namespace {

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos &&
         name.find('\0') == name.npos;
}

bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f64;
}

// Reports what a folder without safetensors contains instead, and how to convert it.
[[noreturn]] void refuse(const std::string& folder, const std::string& stem) {
  if (!is_folder(folder)) throw rendezvous::InputError(folder + " is not a folder");
  for (const char* pickle_file : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
    if (is_there(fs::path(folder) / pickle_file))
      throw rendezvous::InputError(fmt::format(
          "{} has only {}, whose pickle format is not supported; convert it once: python3 -c "
          "\"from "
          "transformers import AutoModelForCausalLM as M; M.from_pretrained('{}', dtype='auto')"
          ".save_pretrained('{}-safetensors')\"",
          folder, pickle_file, folder, folder));
  throw rendezvous::InputError(fmt::format(
      "{} has neither {}.safetensors nor {}.safetensors.index.json", folder, stem, stem));
}

}  // namespace

std::map<std::string, std::string> parse_weight_index(std::string_view text,
                                                      const std::string& file) {
  const Json json = parse_json(text, file);
  const Fields top(json, file);
  const Json& map = top.at("weight_map");
  if (!map.is_object()) top.fail("weight_map", "an object");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, value] : map.items()) {
    if (!value.is_string() || !is_plain_name(value.get<std::string>()))
      throw rendezvous::InputError(
          fmt::format("{}: weight_map: {} must be the name of a file in the same folder, not {}",
                      file, in_quotes(tensor), brief(value)));
    files.emplace(tensor, value.get<std::string>());
  }
  return files;
}

Weights::Weights(const std::string& folder, const std::string& stem) : folder_(folder) {
  const fs::path whole = fs::path(folder) / (stem + ".safetensors");
  const fs::path index = fs::path(folder) / (stem + ".safetensors.index.json");
  if (rendezvous::is_listed(whole))
    add(SafetensorsFile(whole.string()), nullptr);
  else if (rendezvous::is_listed(index))
    open_shards(index.string());
  else
    refuse(folder, stem);
}

void Weights::open_shards(const std::string& index) {
  const auto wanted = parse_weight_index(read_file(index, 100'000'000), index);
  std::vector<std::string> shards;
  for (const auto& [tensor, file] : wanted) shards.push_back(file);
  std::ranges::sort(shards);
  shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
  for (const std::string& shard : shards) {
    const std::string path = (fs::path(folder_) / shard).string();
    if (!is_there(path))
      throw rendezvous::InputError(fmt::format(
          "{} is missing, but {} lists it; download or save the model again", path, index));
    add(SafetensorsFile(path), &wanted);
  }
  for (const auto& [tensor, file] : wanted)
    if (!where_.contains(tensor))
      throw rendezvous::InputError(fmt::format("{} lists tensor {} in {}, but it is not there",
                                               index, in_quotes(tensor), file));
}

void Weights::add(SafetensorsFile file, const std::map<std::string, std::string>* wanted) {
  files_.push_back(std::move(file));
  const SafetensorsFile& shard = files_.back();
  const std::string name = fs::path(shard.path()).filename().string();
  for (const TensorEntry& entry : shard.entries()) {
    const auto [there, is_new] = where_.try_emplace(entry.name, files_.size() - 1, &entry);
    if (!is_new)
      throw rendezvous::InputError(fmt::format("tensor {} is in two files: {} and {}",
                                               in_quotes(entry.name),
                                               files_[there->second.first].path(), shard.path()));
    if (!wanted) continue;
    const auto told = wanted->find(entry.name);
    if (told != wanted->end() && told->second != name)
      throw rendezvous::InputError(fmt::format("tensor {} is in {}, but the index lists it in {}",
                                               in_quotes(entry.name), shard.path(), told->second));
  }
}

std::optional<TensorView> Weights::find(std::string_view name) const {
  const auto found = where_.find(std::string(name));
  if (found == where_.end()) return std::nullopt;
  const auto& [file, entry] = found->second;
  return TensorView{.dtype = entry->dtype,
                    .shape = entry->shape,
                    .bytes = files_[file].bytes(*entry),
                    .file = files_[file].path(),
                    .source = &files_[file].file()};
}

TensorView Weights::get(std::string_view name) const {
  if (auto found = find(name)) return *std::move(found);
  throw rendezvous::InputError(fmt::format("{}: tensor {} is missing", folder_, in_quotes(name)));
}

TensorView Weights::get(const TensorShape& expected) const {
  TensorView found = get(expected.name);
  if (found.shape != expected.shape)
    throw rendezvous::InputError(fmt::format("{}: tensor {} has shape {}, but {} is required",
                                             found.file, in_quotes(expected.name),
                                             shape_text(found.shape), shape_text(expected.shape)));
  return found;
}

TensorView Weights::get_floats(const TensorShape& expected) const {
  TensorView found = get(expected);
  if (!is_float(found.dtype))
    throw rendezvous::InputError(
        fmt::format("{}: tensor {} has dtype {}, but F32, F16, BF16 or F64 is required; only "
                    "bitsandbytes' 4-bit "
                    "weights may have another one",
                    found.file, in_quotes(expected.name), name_of(found.dtype)));
  return found;
}

std::vector<std::string> Weights::names() const {
  std::vector<std::string> all;
  for (const auto& [name, where] : where_) all.push_back(name);
  std::ranges::sort(all);
  return all;
}

std::vector<std::vector<TensorPlan>> split_shards(std::vector<TensorPlan> plan,
                                                  std::uint64_t longest) {
  std::vector<std::vector<TensorPlan>> shards(1);
  std::uint64_t length = 0;
  for (TensorPlan& tensor : plan) {
    const auto bytes = bytes_needed(tensor.dtype, tensor.shape);
    if (!bytes)
      throw rendezvous::InputError(fmt::format("tensor {}: invalid shape {}",
                                               in_quotes(tensor.name), shape_text(tensor.shape)));
    if (!shards.back().empty() && (length > longest || *bytes > longest - length)) {
      shards.emplace_back();
      length = 0;
    }
    length += *bytes;
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

std::vector<WeightsFile> weights_files(std::vector<TensorPlan> plan, std::uint64_t longest,
                                       const std::string& stem) {
  auto shards = split_shards(std::move(plan), longest);
  std::vector<WeightsFile> files;
  for (std::size_t i = 0; i < shards.size(); ++i)
    files.push_back({.name = shards.size() == 1 ? stem + ".safetensors"
                                                : fmt::format("{}-{:05}-of-{:05}.safetensors", stem,
                                                              i + 1, shards.size()),
                     .tensors = std::move(shards[i])});
  return files;
}

std::string weight_index_name(const std::string& stem) {
  return stem + ".safetensors.index.json";
}

std::string weight_index_text(const std::vector<WeightsFile>& files) {
  std::uint64_t total = 0;
  Json index = {{"metadata", Json::object()}, {"weight_map", Json::object()}};
  for (const auto& file : files)
    for (const auto& tensor : file.tensors) {
      total += *bytes_needed(tensor.dtype, tensor.shape);
      index["weight_map"][tensor.name] = file.name;
    }
  index["metadata"]["total_size"] = total;
  return index.dump(2) + "\n";
}

WeightsWriter::WeightsWriter(std::string folder, std::vector<TensorPlan> plan,
                             std::uint64_t longest_shard, const std::string& stem)
    : folder_(std::move(folder)), stem_(stem) {
  auto files = weights_files(std::move(plan), longest_shard, stem);
  if (files.size() > 1) index_ = weight_index_text(files);
  for (auto& file : files) {
    for (const TensorPlan& tensor : file.tensors)
      if (!shard_of_.emplace(tensor.name, files_.size()).second)
        throw std::runtime_error(fmt::format("cannot write {}: tensor {} is listed twice", folder_,
                                             in_quotes(tensor.name)));
    files_.push_back(std::make_unique<SafetensorsWriter>((fs::path(folder_) / file.name).string(),
                                                         std::move(file.tensors)));
  }
}

void WeightsWriter::write(std::string_view name, std::span<const std::byte> bytes,
                          std::uint64_t offset) {
  const auto found = shard_of_.find(name);
  if (found == shard_of_.end())
    throw std::runtime_error(
        fmt::format("cannot write {}: tensor {} is not in the plan", folder_, in_quotes(name)));
  files_[found->second]->write(name, bytes, offset);
}

std::vector<FileRecord> WeightsWriter::finish() {
  std::vector<FileRecord> records;
  for (const auto& file : files_) records.push_back(file->finish());
  if (index_.empty()) return records;
  const std::string name = weight_index_name(stem_);
  write_file((fs::path(folder_) / name).string(), index_);
  records.push_back({.name = name, .size = index_.size(), .digest = digest_of(bytes_of(index_))});
  return records;
}

}  // namespace mgpu::checkpoint
