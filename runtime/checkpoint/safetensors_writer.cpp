#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "runtime/checkpoint/json_text.hpp"
#include "runtime/checkpoint/safetensors.hpp"

namespace mgpu::checkpoint {

namespace {

// Small enough to stay in the CPU cache between checksumming and writing.
constexpr std::size_t kPiece = std::size_t{1} << 20;

// A JSON string with quotes.
std::string json_string(const std::string& path, const std::string& text) {
  try {
    return Json(text).dump();
  } catch (const Json::exception&) {
    throw std::runtime_error(
        fmt::format("cannot write {}: the name {} is not UTF-8", path, in_quotes(text)));
  }
}

std::string metadata_text(const std::string& path, const Metadata& metadata) {
  std::string text;
  for (const auto& [key, value] : metadata)
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", json_string(path, key),
                        json_string(path, value));
  return "{" + text + "}";
}

[[noreturn]] void fail_writing(const std::string& path, const std::string& tensor,
                               const std::string& what) {
  throw std::runtime_error(
      fmt::format("cannot write {}: tensor {}: {}", path, in_quotes(tensor), what));
}

}  // namespace

FilePlan plan_file(const std::string& path, std::vector<TensorPlan> tensors,
                   const Metadata& metadata) {
  std::ranges::stable_sort(tensors, std::ranges::greater{},
                           [](const TensorPlan& tensor) { return bits_of(tensor.dtype); });
  std::string json = "{";
  if (!metadata.empty()) json += "\"__metadata__\":" + metadata_text(path, metadata) + ",";
  FilePlan file;
  std::set<std::string> names{"__metadata__"};
  std::uint64_t at = 0;
  for (TensorPlan& tensor : tensors) {
    const auto bytes = bytes_needed(tensor.dtype, tensor.shape);
    if (!bytes || *bytes > INT64_MAX - at)
      fail_writing(path, tensor.name, "invalid shape " + shape_text(tensor.shape));
    if (!names.insert(tensor.name).second)
      fail_writing(path, tensor.name, "the name is already used");
    json += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}},)",
                        json_string(path, tensor.name), name_of(tensor.dtype),
                        fmt::join(tensor.shape, ","), at, at + *bytes);
    file.tensors.push_back({.plan = std::move(tensor), .begin = at, .end = at + *bytes});
    at += *bytes;
  }
  if (json.back() == ',') json.pop_back();
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');  // aligns the data

  static_assert(std::endian::native == std::endian::little);
  const std::uint64_t length = json.size();
  file.header.assign(reinterpret_cast<const char*>(&length), sizeof length);
  file.header += json;
  file.size = file.header.size() + at;
  for (TensorPlace& place : file.tensors) {
    place.begin += file.header.size();
    place.end += file.header.size();
  }
  return file;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorPlan> plan,
                                     const Metadata& metadata)
    : path_(path) {
  auto planned = plan_file(path, std::move(plan), metadata);
  for (TensorPlace& place : planned.tensors) slots_.push_back({.place = std::move(place)});
  for (std::size_t i = 0; i < slots_.size(); ++i) index_.emplace(slots_[i].place.plan.name, i);
  size_ = planned.size;
  file_.emplace(path, size_);
  put(0, bytes_of(planned.header));
}

void SafetensorsWriter::mark_written(Slot& slot, std::uint64_t begin, std::uint64_t end) {
  auto next = slot.written.lower_bound(begin);
  const bool after = next != slot.written.end() && next->first < end;
  const bool before = next != slot.written.begin() && std::prev(next)->second > begin;
  if (after || before)
    fail_writing(path_, slot.place.plan.name,
                 fmt::format("bytes {} to {} were written twice", begin - slot.place.begin,
                             end - slot.place.begin));
  if (next != slot.written.end() && next->first == end) {
    end = next->second;
    next = slot.written.erase(next);
  }
  if (next != slot.written.begin() && std::prev(next)->second == begin)
    std::prev(next)->second = end;
  else
    slot.written.emplace(begin, end);
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes,
                              std::uint64_t offset) {
  const auto found = index_.find(name);
  if (found == index_.end()) fail_writing(path_, std::string(name), "it is not in the plan");
  Slot& slot = slots_[found->second];
  const std::uint64_t length = slot.place.end - slot.place.begin;
  if (offset > length || bytes.size() > length - offset)
    fail_writing(
        path_, slot.place.plan.name,
        fmt::format("{} bytes at {} do not fit into its {}", bytes.size(), offset, length));
  if (bytes.empty()) return;
  mark_written(slot, slot.place.begin + offset, slot.place.begin + offset + bytes.size());
  put(slot.place.begin + offset, bytes);
}

void SafetensorsWriter::put(std::uint64_t at, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kPiece));
    if (at == digested_) {
      digest_.update(piece);
      digested_ += piece.size();
    }
    file_->write_at(at, piece);
    at += piece.size();
    bytes = bytes.subspan(piece.size());
  }
}

// Bytes written out of order are not in the checksum yet; they are still in the page cache.
void SafetensorsWriter::digest_the_rest() {
  std::vector<std::byte> piece(std::min<std::uint64_t>(kPiece, size_ - digested_));
  while (digested_ < size_) {
    const auto part = std::span(piece).first(std::min<std::uint64_t>(kPiece, size_ - digested_));
    file_->read_at(digested_, part);
    digest_.update(part);
    digested_ += part.size();
  }
}

FileRecord SafetensorsWriter::finish() {
  for (const Slot& slot : slots_) {
    std::uint64_t there = 0;
    for (const auto& [begin, end] : slot.written) there += end - begin;
    if (there != slot.place.end - slot.place.begin)
      fail_writing(path_, slot.place.plan.name,
                   fmt::format("{} of its {} bytes were never written",
                               slot.place.end - slot.place.begin - there,
                               slot.place.end - slot.place.begin));
  }
  digest_the_rest();
  file_->commit();
  return {.name = std::filesystem::path(path_).filename().string(),
          .size = size_,
          .digest = digest_.hex()};
}

}  // namespace mgpu::checkpoint
