#include "runtime/data/shard_maker.hpp"

#include <charconv>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/base/input_error.hpp"
#include "runtime/data/digest.hpp"
#include "runtime/data/parallel.hpp"

namespace mgpu::data {

namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexName = "pieces.index";

struct Work {
  const SourcePlan* plan;
  std::size_t piece;
};

std::string tokenize(const SourcePlan& plan, std::size_t piece, std::uint64_t first,
                     std::string_view text, bool skip_bad_rows) {
  ShardWriter writer;
  for (Rows rows(plan.file.syntax(), text); rows.next();) {
    try {
      writer.add(plan.read(rows), rows.offset());
    } catch (const std::runtime_error& e) {  // of the row, the tokenizer or the template
      plan.file.require_unchanged();
      if (!skip_bad_rows)
        rendezvous::throw_like(
            e, fmt::format("{}:{}: {}", plan.file.path(), first + rows.offset(), e.what()));
      writer.add_bad(rows.offset(), e.what());
    }
  }
  return writer.finish(plan.key, piece);
}

Shard shard_at(const Work& work) {
  return Shard(work.plan->path_of(work.piece), work.plan->key, work.piece, work.plan->vocabulary);
}

std::optional<Shard> usable_shard(const Work& work) {
  if (!fs::exists(work.plan->path_of(work.piece))) return std::nullopt;
  try {
    return shard_at(work);
  } catch (const ShardError&) {
    return std::nullopt;  // tokenized again and replaced
  }
}

Shard load_or_tokenize(const Work& work, const PrepareOptions& options) {
  if (auto shard = usable_shard(work)) return std::move(*shard);
  const SourceFile& file = work.plan->file;
  const auto tokens = tokenize(*work.plan, work.piece, file.first_line(work.piece),
                               file.piece(work.piece), options.skip_bad_rows);
  file.require_unchanged();  // else other tokens would be found under the digest of these
  write_prepared(work.plan->path_of(work.piece), tokens);
  return shard_at(work);
}

// Waits for a shard that another part has written.
Shard wait_for_shard(const Work& work, const PrepareOptions& options) {
  const fs::path path = work.plan->path_of(work.piece);
  const auto deadline = std::chrono::steady_clock::now() + options.visible_within;
  while (!fs::exists(path)) {
    if (std::chrono::steady_clock::now() >= deadline)
      throw std::runtime_error(
          fmt::format("{} is missing although all ranks have finished tokenizing; set "
                      "dataset_prepared_path to a folder that is shared by all nodes, and start "
                      "all nodes with the same data and tokenizer",
                      path.string()));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    // Listing the folder makes a network file system refresh its view.
    std::error_code ignored;
    for (fs::directory_iterator it(work.plan->folder, ignored), end; it != end && !ignored;
         it.increment(ignored)) {
    }
  }
  return shard_at(work);
}

// The index of a file that is read in blocks: a checksum, the key, and the first line or row of
// each block, on lines of their own.
std::string index_text(const SourcePlan& plan, const std::vector<std::uint64_t>& firsts) {
  std::string body = plan.key + "\n";
  for (const auto first : firsts) body += fmt::format("{}\n", first);
  return fmt::format("{:016x}\n{}", checksum(body), body);
}

// Nothing if the index is missing, torn, damaged or of other data.
std::optional<std::vector<std::uint64_t>> read_index(const SourcePlan& plan) {
  std::vector<std::uint64_t> firsts;
  try {
    const MappedFile file(plan.folder / kIndexName);
    std::string_view rest = file.bytes();
    take_line(rest);
    take_line(rest);
    while (!rest.empty()) {
      const auto line = take_line(rest);
      std::from_chars(line.data(), line.data() + line.size(), firsts.emplace_back());
    }
    if (file.bytes() == index_text(plan, firsts)) return firsts;
  } catch (const std::runtime_error&) {  // it is written again
  }
  return std::nullopt;
}

// One reader passes over the whole file, also in the other parts, so blocks need no random access.
std::vector<std::uint64_t> tokenize_blocks(const SourcePlan& plan, std::size_t number,
                                           const PrepareOptions& options) {
  const auto parts = static_cast<std::size_t>(options.parts);
  const auto is_own = [&](std::size_t block) {
    return (block + number) % parts == static_cast<std::size_t>(options.part);
  };
  if (auto firsts = read_index(plan)) {
    bool complete = true;
    for (std::size_t block = 0; complete && block < firsts->size(); ++block)
      complete = !is_own(block) || usable_shard({&plan, block});
    if (complete) return std::move(*firsts);
  }
  auto firsts = for_each_block(
      plan.file, options.threads,
      [&](std::size_t block) { return is_own(block) && !usable_shard({&plan, block}); },
      [&](const Block& block) {
        write_prepared(plan.path_of(block.index),
                       tokenize(plan, block.index, block.first, block.text, options.skip_bad_rows));
      });
  write_prepared(plan.folder / kIndexName, index_text(plan, firsts));
  return firsts;
}

// Removes files that a process left behind when it was killed while writing.
void remove_stale_files(const fs::path& folder) {
  std::error_code ignored;
  const auto now = fs::file_time_type::clock::now();
  for (fs::directory_iterator it(folder, ignored), end; it != end && !ignored;
       it.increment(ignored))
    if (const auto time = it->last_write_time(ignored);
        it->path().extension() != ".tokens" && it->path().extension() != ".index" && !ignored &&
        now - time > std::chrono::hours(24))
      fs::remove(it->path(), ignored);
}

}  // namespace

std::vector<FileShards> make_shards(const std::vector<SourcePlan>& plans,
                                    const PrepareOptions& options) {
  std::vector<FileShards> files(plans.size());
  std::vector<Work> work;  // the pieces of all files that have pieces
  for (std::size_t i = 0; i < plans.size(); ++i) {
    remove_stale_files(plans[i].folder);
    for (std::size_t piece = 0; piece < plans[i].file.pieces(); ++piece) {
      work.push_back({&plans[i], piece});
      files[i].firsts.push_back(plans[i].file.first_line(piece));
    }
  }
  std::vector<std::optional<Shard>> shards(work.size());
  const auto parts = static_cast<std::size_t>(options.parts);
  const auto part = static_cast<std::size_t>(options.part);
  const std::size_t own = work.size() / parts + (part < work.size() % parts ? 1 : 0);
  for_each_index(own, options.threads, [&](std::size_t i) {
    const std::size_t at = part + i * parts;
    shards[at] = load_or_tokenize(work[at], options);
  });
  for (std::size_t i = 0; i < plans.size(); ++i)
    if (!plans[i].file.has_pieces()) files[i].firsts = tokenize_blocks(plans[i], i, options);
  if (options.barrier) options.barrier();

  std::vector<Work> all;
  std::vector<std::optional<Shard>> opened;
  auto next = shards.begin();
  for (std::size_t i = 0; i < plans.size(); ++i)
    for (std::size_t piece = 0; piece < files[i].firsts.size(); ++piece) {
      all.push_back({&plans[i], piece});
      opened.push_back(plans[i].file.has_pieces() ? std::move(*next++) : std::nullopt);
    }
  for_each_index(all.size(), options.threads, [&](std::size_t at) {
    if (!opened[at]) opened[at] = wait_for_shard(all[at], options);
  });
  for (std::size_t at = 0; at < all.size(); ++at)
    files[static_cast<std::size_t>(all[at].plan - plans.data())].shards.push_back(
        std::move(*opened[at]));
  return files;
}

}  // namespace mgpu::data
