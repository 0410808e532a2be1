#include "runtime/checkpoint/manifest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/file_presence.hpp"
#include "rendezvous/base/input_error.hpp"
#include "runtime/checkpoint/json_text.hpp"

namespace mgpu::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFormat = "mgpu-checkpoint";
constexpr std::int64_t kVersion = 2;
constexpr std::size_t kDigits = 16;                       // of a checksum
constexpr std::size_t kReadPiece = std::size_t{1} << 20;  // stays in the CPU's cache
constexpr const char* kSeal = "manifest_xxh64";
constexpr std::int64_t kMost = INT64_MAX;

// The checksum of a manifest covers its text on one line, without the checksum itself.
std::string seal_of(Json json) {
  json.erase(kSeal);
  return digest_of(bytes_of(json.dump()));
}

bool stays_inside(const std::string& name) {
  const fs::path path(name);
  return !name.empty() && path.is_relative() && path.lexically_normal() == path &&
         *path.begin() != ".." && path.has_filename() && name.find('\0') == name.npos;
}

FileRecord parse_record(const std::string& name, const Json& value, const std::string& file) {
  const Fields fields(value, fmt::format("{}: files: {}", file, in_quotes(name)));
  if (!stays_inside(name))
    throw rendezvous::InputError(fields.where() + " is not a valid file name");
  return {.name = name,
          .size = static_cast<std::uint64_t>(fields.integer("size", 0, kMost)),
          .digest = fields.string("xxh64")};
}

void check_size(const std::string& folder, const FileRecord& record) {
  const std::string path = (fs::path(folder) / record.name).string();
  std::error_code error;
  const std::uint64_t size = fs::file_size(path, error);
  if (error) rendezvous::throw_errno(path, error.value());
  if (size != record.size)
    throw std::runtime_error(
        fmt::format("{} has {} bytes, but {} were saved", path, size, record.size));
}

// A part of a file that has a checksum of its own.
struct Block {
  const FileRecord* record;
  std::uint64_t begin = 0, end = 0;
  std::string_view digest;
};

// In version 1 all files had one checksum.
std::vector<Block> blocks_of(const Manifest& manifest) {
  std::vector<Block> blocks;
  for (const FileRecord& record : manifest.files) {
    const std::string_view digest = record.digest;
    const auto count = std::max<std::uint64_t>(1, (record.size + kDigestBlock - 1) / kDigestBlock);
    if (digest.size() != count * kDigits) {
      blocks.push_back({&record, 0, record.size, digest});
      continue;
    }
    for (std::uint64_t i = 0; i < count; ++i)
      blocks.push_back({&record, i * kDigestBlock, std::min((i + 1) * kDigestBlock, record.size),
                        digest.substr(i * kDigits, kDigits)});
  }
  return blocks;
}

void check_bytes(const std::string& folder, const Block& block) {
  const MappedFile file((fs::path(folder) / block.record->name).string());
  if (file.bytes().size() != block.record->size) check_size(folder, *block.record);
  std::vector<std::byte> piece(std::min<std::uint64_t>(kReadPiece, block.end - block.begin));
  Digest now;
  for (auto at = block.begin; at < block.end; at += piece.size()) {
    const auto part = file.bytes().subspan(at, std::min<std::uint64_t>(kReadPiece, block.end - at));
    file.read(part, piece.data());
    now.update(std::span(piece).first(part.size()));
  }
  if (now.hex() == block.digest) return;
  const bool whole = block.begin == 0 && block.end == block.record->size;
  throw std::runtime_error(fmt::format(
      "{} has changed since it was saved (xxh64{} is {}, was {}): the disk is failing or another "
      "program changed it",
      file.path(), whole ? "" : fmt::format(" of bytes {} to {}", block.begin, block.end),
      now.hex(), block.digest));
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  const bool has_blocks = std::ranges::any_of(
      manifest.files, [](const FileRecord& file) { return file.digest.size() > kDigits; });
  Json json = {{"format", kFormat},
               {"version", has_blocks ? kVersion : 1},
               {"step", manifest.step},
               {"versions", manifest.versions},
               {"files", Json::object()}};
  for (const FileRecord& record : manifest.files)
    json["files"][record.name] = {{"size", record.size}, {"xxh64", record.digest}};
  json[kSeal] = seal_of(json);
  return json.dump(2) + "\n";
}

Manifest parse_manifest(std::string_view text, const std::string& file) {
  const Json json = parse_json(text, file);
  const Fields top(json, file);
  if (top.string("format") != kFormat) top.fail("format", in_quotes(kFormat));
  if (top.integer("version", 1, kMost) > kVersion)
    throw rendezvous::InputError(
        fmt::format("{}: format version {} is not supported; this program reads up to {}", file,
                    brief(json["version"]), kVersion));
  if (top.string(kSeal) != seal_of(json))
    throw std::runtime_error(file + " has changed since it was saved");

  Manifest manifest{.step = top.integer("step", 0, kMost)};
  const Json& versions = top.at("versions");
  const Fields named(versions, file + ": versions");
  for (const auto& item : versions.items())
    manifest.versions.emplace(item.key(), named.string(item.key().c_str()));
  const Json& files = top.at("files");
  if (!files.is_object()) top.fail("files", "an object");
  for (const auto& [name, value] : files.items())
    manifest.files.push_back(parse_record(name, value, file));
  return manifest;
}

Manifest read_manifest(const std::string& folder) {
  const fs::path path = fs::path(folder) / kManifestName;
  if (!rendezvous::is_there(folder))
    throw rendezvous::InputError(fmt::format("there is no checkpoint {}", folder));
  if (!rendezvous::is_there(path))
    throw rendezvous::InputError(
        fmt::format("{} has no {}: its save did not finish, or another program wrote it", folder,
                    kManifestName));
  return parse_manifest(read_file(path.string(), 100'000'000), path.string());
}

FileRecord record_of(const std::string& folder, const std::string& name) {
  const MappedFile file((fs::path(folder) / name).string());
  FileDigest digest;
  digest.update(file.bytes());
  return {.name = name, .size = file.bytes().size(), .digest = digest.hex()};
}

Manifest verify(const std::string& folder, int threads) {
  Manifest manifest = read_manifest(folder);
  for (const FileRecord& record : manifest.files) check_size(folder, record);

  const auto blocks = blocks_of(manifest);
  std::atomic<std::size_t> next = 0;
  std::vector<std::exception_ptr> wrong(blocks.size());
  const auto work = [&] {
    for (std::size_t i; (i = next++) < blocks.size();) try {
        check_bytes(folder, blocks[i]);
      } catch (...) {
        wrong[i] = std::current_exception();
      }
  };
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(work);
    work();
  }
  for (const auto& error : wrong)
    if (error) std::rethrow_exception(error);
  return manifest;
}

}  // namespace mgpu::checkpoint
