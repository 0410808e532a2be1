#include "runtime/checkpoint/file_images.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>

namespace mgpu::checkpoint {

namespace fs = std::filesystem;

namespace {

// Small enough to stay in the CPU cache between checksumming and writing.
constexpr std::size_t kWritePiece = std::size_t{1} << 20;

struct Target {
  OutputFile file;
  std::vector<std::string> digests;  // by block
};

struct ImageBlock {
  std::size_t image, number;
};

// Calls work(0) ... work(count - 1) with up to `threads` threads. After an exception no new calls
// start, and the first one is thrown again.
void for_each(std::size_t count, int threads, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  const auto loop = [&] {
    for (std::size_t i; (i = next++) < count;) try {
        work(i);
      } catch (...) {
        next = count;
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
      }
  };
  {
    std::vector<std::jthread> others;
    const auto wanted = std::min(static_cast<std::size_t>(std::max(1, threads)), count);
    for (std::size_t i = 1; i < wanted; ++i) others.emplace_back(loop);
    loop();
  }
  if (error) std::rethrow_exception(error);
}

// Not the folder itself: a checkpoint that was given up must not appear again.
void create_subfolders(const std::string& folder, const std::string& name) {
  fs::path path(folder);
  for (const auto& part : fs::path(name).parent_path()) {
    path /= part;
    std::error_code error;
    fs::create_directory(path, error);
    if (error) throw_write_error("create", path.string(), error.value());
  }
}

std::size_t block_count(const FileImage& image) {
  return static_cast<std::size_t>(
      std::max<std::uint64_t>(1, (image.bytes.size() + kDigestBlock - 1) / kDigestBlock));
}

void write_block(const FileImage& image, std::size_t number, Target& target,
                 const std::stop_token& stop) {
  const auto begin = number * static_cast<std::size_t>(kDigestBlock);
  const auto end = std::min(image.bytes.size(), begin + static_cast<std::size_t>(kDigestBlock));
  Digest digest;
  for (auto at = begin; at < end && !stop.stop_requested(); at += kWritePiece) {
    const auto piece = image.bytes.subspan(at, std::min(kWritePiece, end - at));
    digest.update(piece);
    target.file.write_at(at, piece);
  }
  target.digests[number] = digest.hex();
}

FileRecord finished_record(const FileImage& image, const Target& target) {
  FileRecord record{.name = image.name, .size = image.bytes.size(), .digest = {}};
  for (const auto& digest : target.digests) record.digest += digest;
  return record;
}

}  // namespace

std::optional<std::vector<FileRecord>> write_images(const std::string& folder,
                                                    const std::vector<FileImage>& images,
                                                    int threads, const std::stop_token& stop) {
  std::vector<Target> targets;
  std::vector<ImageBlock> blocks;
  for (std::size_t i = 0; i < images.size(); ++i) {
    create_subfolders(folder, images[i].name);
    const auto path = fs::path(folder) / images[i].name;
    const auto count = block_count(images[i]);
    targets.push_back(
        {OutputFile(path.string(), images[i].bytes.size()), std::vector<std::string>(count)});
    for (std::size_t number = 0; number < count; ++number) blocks.push_back({i, number});
  }
  for_each(blocks.size(), threads, [&](std::size_t i) {
    const auto [image, number] = blocks[i];
    write_block(images[image], number, targets[image], stop);
  });
  if (stop.stop_requested()) return std::nullopt;
  for_each(targets.size(), threads, [&](std::size_t i) { targets[i].file.commit(); });
  std::vector<FileRecord> records;
  for (std::size_t i = 0; i < images.size(); ++i)
    records.push_back(finished_record(images[i], targets[i]));
  return records;
}

}  // namespace mgpu::checkpoint
