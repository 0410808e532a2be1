#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "rendezvous/base/input_error.hpp"
#include "runtime/checkpoint/json_text.hpp"
#include "runtime/checkpoint/safetensors.hpp"

namespace mgpu::checkpoint {

namespace {

constexpr std::uint64_t kLongestHeader = 100'000'000;
constexpr std::size_t kLengthBytes = 8;  // the header's length, little-endian

[[noreturn]] void fail(const std::string& file, const std::string& what) {
  throw rendezvous::InputError(fmt::format("{}: {}; download or save it again", file, what));
}

[[noreturn]] void fail(const std::string& file, const std::string& tensor,
                       const std::string& what) {
  fail(file, fmt::format("tensor {}: {}", in_quotes(tensor), what));
}

std::uint64_t header_length(std::span<const std::byte> file, const std::string& name) {
  if (file.size() < kLengthBytes)
    fail(name, fmt::format("{} bytes are too few for a safetensors file", file.size()));
  std::uint64_t length;
  std::memcpy(&length, file.data(), sizeof length);
  if (length > kLongestHeader)
    fail(name, fmt::format("the header has {} bytes, but at most {} are allowed: not a safetensors "
                           "file, or a corrupt one",
                           length, kLongestHeader));
  if (length > file.size() - kLengthBytes)
    fail(name, fmt::format("truncated: the header has {} bytes, the file {}", length, file.size()));
  return length;
}

Metadata metadata_of(const Json& value, const std::string& file) {
  Metadata metadata;
  if (value.is_null()) return metadata;
  if (!value.is_object()) fail(file, "__metadata__ must be an object, not " + brief(value));
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string())
      fail(file,
           fmt::format("__metadata__: {} must be a string, not {}", in_quotes(key), brief(text)));
    metadata.emplace(key, text.get<std::string>());
  }
  return metadata;
}

std::uint64_t natural(const Json& value, const std::string& file, const std::string& tensor,
                      const char* what) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > INT64_MAX)
    fail(file, tensor, fmt::format("{} must be whole numbers from 0, not {}", what, brief(value)));
  return value.get<std::uint64_t>();
}

TensorEntry entry_of(const std::string& name, const Json& value, const std::string& file) {
  const auto member = [&](const char* key) -> const Json& {
    if (!value.is_object()) fail(file, name, "must be an object, not " + brief(value));
    const auto found = value.find(key);
    if (found == value.end()) fail(file, name, fmt::format("{} is missing", key));
    return *found;
  };
  TensorEntry entry{.name = name};
  const Json& dtype = member("dtype");
  const auto known = dtype.is_string() ? dtype_named(dtype.get<std::string>()) : std::nullopt;
  if (!known) fail(file, name, "unknown dtype " + brief(dtype));
  entry.dtype = *known;

  const Json& shape = member("shape");
  if (!shape.is_array()) fail(file, name, "shape must be a list, not " + brief(shape));
  for (const Json& side : shape)
    entry.shape.push_back(static_cast<std::int64_t>(natural(side, file, name, "shape's numbers")));

  const Json& offsets = member("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2)
    fail(file, name, "data_offsets must be [begin, end], not " + brief(offsets));
  entry.begin = natural(offsets[0], file, name, "data_offsets");
  entry.end = natural(offsets[1], file, name, "data_offsets");
  return entry;
}

void check_length(const TensorEntry& entry, const std::string& file) {
  if (entry.end < entry.begin)
    fail(file, entry.name,
         fmt::format("data_offsets end at {} before they begin at {}", entry.end, entry.begin));
  const auto needed = bytes_needed(entry.dtype, entry.shape);
  if (!needed)
    fail(file, entry.name,
         fmt::format("shape {} of {} has an invalid size", shape_text(entry.shape),
                     name_of(entry.dtype)));
  if (*needed != entry.end - entry.begin)
    fail(
        file, entry.name,
        fmt::format("{} of shape {} takes {} bytes, but data_offsets give {}", name_of(entry.dtype),
                    shape_text(entry.shape), *needed, entry.end - entry.begin));
}

// Checks that the entries, in order, cover the data exactly.
void check_cover(const std::vector<TensorEntry>& entries, std::uint64_t data,
                 const std::string& file) {
  std::uint64_t at = 0;
  for (const TensorEntry& entry : entries) {
    check_length(entry, file);
    if (entry.end > data)
      fail(file, entry.name,
           fmt::format("truncated: it ends at byte {} of the data, which has {}", entry.end, data));
    if (entry.begin < at)
      fail(file, entry.name,
           fmt::format("begins at byte {} of the data, within another tensor", entry.begin));
    if (entry.begin > at)
      fail(file, entry.name,
           fmt::format("{} bytes before it belong to no tensor", entry.begin - at));
    at = entry.end;
  }
  if (at != data) fail(file, fmt::format("the last {} bytes belong to no tensor", data - at));
}

}  // namespace

SafetensorsLayout read_layout(std::span<const std::byte> file, const std::string& name) {
  const std::uint64_t length = header_length(file, name);
  const std::string_view text = text_of(file.subspan(kLengthBytes, length));
  if (!text.starts_with('{')) fail(name, "the header does not begin with '{'");
  const Json header = parse_json(text, name + " (header)");

  SafetensorsLayout layout;
  layout.data_begin = kLengthBytes + length;
  for (const auto& [key, value] : header.items()) {
    if (key == "__metadata__")
      layout.metadata = metadata_of(value, name);
    else
      layout.entries.push_back(entry_of(key, value, name));
  }
  // Empty tensors come before the tensor that begins at the same offset.
  std::ranges::stable_sort(layout.entries, {}, [](const TensorEntry& entry) {
    return std::pair(entry.begin, entry.end);
  });
  check_cover(layout.entries, file.size() - layout.data_begin, name);
  return layout;
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : file_(path), layout_(read_layout(file_.bytes(), path)) {
  for (std::size_t i = 0; i < layout_.entries.size(); ++i)
    index_.emplace(layout_.entries[i].name, i);
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &layout_.entries[found->second];
}

std::span<const std::byte> SafetensorsFile::bytes(const TensorEntry& entry) const {
  return file_.bytes().subspan(layout_.data_begin + entry.begin, entry.end - entry.begin);
}

}  // namespace mgpu::checkpoint
