// Files that a training finds in its output and cache folders: token shards, and what a resumed run
// reads besides the model. The low 2 bits of the first byte select the file. Checksums are filled
// in, since anybody can compute them.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "rendezvous/base/untrusted_json.hpp"
#include "runtime/checkpoint/manifest.hpp"
#include "runtime/data/digest.hpp"
#include "runtime/data/shard.hpp"
#include "runtime/train/progress.hpp"
#include "runtime/train/state_pieces.hpp"

using namespace mgpu;

namespace {

void require(bool what) {
  if (!what) std::abort();
}

// A file in memory that can be opened by its path.
std::string path_with(std::string_view bytes) {
  static const int fd = ::memfd_create("mgpu-fuzz", MFD_CLOEXEC);
  require(fd >= 0 && ::ftruncate(fd, 0) == 0);
  require(::pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return fmt::format("/proc/self/fd/{}", fd);
}

template <class Work>
void allow_refusal(Work work) {
  try {
    work();
  } catch (const std::runtime_error& e) {
    const std::string_view message = e.what();
    require(!message.empty() && message.size() < 1500);
    require(message.find('\n') == message.npos && message.find('\0') == message.npos);
  }
}

// --- Token shards

const std::string kShardKey(64, '0');
constexpr std::int32_t kVocabulary = 1000;

void put(std::string& file, std::size_t at, std::string_view bytes) {
  std::copy(bytes.begin(), bytes.end(), file.begin() + static_cast<std::ptrdiff_t>(at));
}

std::uint64_t number_at(std::string_view file, std::size_t at) {
  std::uint64_t number = 0;
  std::memcpy(&number, file.data() + at, sizeof number);
  return number;
}

// Makes the file as long as shard.hpp says that a file with its counts is, if they are small.
void fit_length(std::string& file) {
  const std::uint64_t examples = number_at(file, 88), tokens = number_at(file, 96);
  const std::uint64_t notes = number_at(file, 128), has_labels = number_at(file, 136);
  if (std::max({examples, tokens, notes}) > 4096) return;
  std::uint64_t end = 144;
  for (const auto bytes : {(examples + 1) * 8, examples * 4, examples * 4, (tokens + 7) / 8,
                           tokens * 4, has_labels != 0 ? tokens * 4 : 0})
    end = (end + bytes + 7) / 8 * 8;
  file.resize(end + notes);
}

void read_shard(std::string file, bool fits) {
  if (file.size() < 144) file.resize(144);
  put(file, 0, "mgpuTOK1");
  put(file, 16, kShardKey);
  put(file, 80, std::string(8, '\0'));
  if (fits) fit_length(file);
  const auto sum = data::checksum(std::string_view(file).substr(16));
  put(file, 8, {reinterpret_cast<const char*>(&sum), sizeof sum});
  const data::Shard shard(path_with(file), kShardKey, 0, kVocabulary);
  std::size_t tokens = 0;
  for (std::size_t i = 0; i < shard.size(); ++i) {
    const data::Sequence sequence = shard[i];
    tokens += sequence.ids.size();
    for (std::size_t t = 0; t < sequence.ids.size(); ++t) {
      const auto id = sequence.ids[t], label = sequence.label(t);
      require(id >= 0 && id < kVocabulary);
      require(label == data::kNoTarget || (label >= 0 && label < kVocabulary));
    }
    require(shard.label_count(i) <= sequence.ids.size());
    require(shard.label_count(i, sequence.ids.size() / 2) <= sequence.ids.size());
    shard.line(i);
  }
  require(tokens * 4 <= file.size());
  require(shard.notes().size() <= 16);
}

// --- Checkpoints

void read_progress(const std::string& text) {
  const auto progress = train::parse_progress(text, "f");
  require(progress.step >= 0 && progress.updates >= 0);
  const auto written = train::progress_text(progress);
  require(written.size() <= 32 * text.size() + 1000);
  require(train::parse_progress(written, "g") == progress);
}

// The header up to a zero byte, then the data.
void read_pieces(std::string_view bytes) {
  const auto header = bytes.substr(0, bytes.find('\0'));
  const std::uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  file += header;
  file += bytes.substr(std::min(bytes.size(), header.size() + 1));
  std::vector<std::unique_ptr<checkpoint::SafetensorsFile>> files;
  files.push_back(std::make_unique<checkpoint::SafetensorsFile>(path_with(file)));
  for (const auto& [key, pieces] : train::index_pieces(files)) {
    for (const auto& piece : pieces) {
      require(piece.begin >= 0 && piece.size >= 0 && piece.begin + piece.size >= piece.begin);
      require(piece.file->bytes(*piece.entry).size() <= file.size());
      files[0]->find(train::scales_name(piece.entry->name));
    }
  }
}

void read_manifest(std::string_view text) {
  auto json = rendezvous::parse_untrusted_json(text);
  if (json.is_object()) {
    json.erase("manifest_xxh64");
    const std::string sealed = json.dump();
    json["manifest_xxh64"] =
        checkpoint::digest_of(std::as_bytes(std::span(sealed.data(), sealed.size())));
  }
  const auto manifest =
      checkpoint::parse_manifest(json.is_object() ? json.dump() : std::string(text), "f");
  for (const auto& record : manifest.files)
    require(!record.name.empty() && record.name.front() != '/' && record.name != ".." &&
            !record.name.starts_with("../") && record.name.find("/../") == std::string::npos);
  const auto written = checkpoint::manifest_text(manifest);
  require(written.size() <= 64 * text.size() + 1000);
  require(checkpoint::parse_manifest(written, "g") == manifest);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(input) + 1, size - 1);
  allow_refusal([&] {
    switch (input[0] & 3) {
      case 0:
        return read_shard(std::string(rest), (input[0] & 4) != 0);
      case 1:
        return read_progress(std::string(rest));
      case 2:
        return read_pieces(rest);
      default:
        return read_manifest(rest);
    }
  });
  return 0;
}
