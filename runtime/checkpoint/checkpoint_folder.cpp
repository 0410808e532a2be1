#include "runtime/checkpoint/checkpoint_folder.hpp"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <exception>
#include <filesystem>
#include <optional>
#include <stdexcept>

#include "runtime/checkpoint/file.hpp"

namespace mgpu::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kTemporary = ".tmp-";
constexpr std::string_view kAside = ".old";

std::string temporary_name(std::int64_t step) {
  static std::atomic<unsigned> count = 0;
  return fmt::format(".{}{}{}{}-{}", kPrefix, step, kTemporary, ::getpid(), count++);
}

std::optional<std::int64_t> number_in(std::string_view text) {
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (text.empty() || text[0] == '-' || error != std::errc{} || end != text.data() + text.size())
    return std::nullopt;
  return step;
}

// The step of "checkpoint-8", or of ".checkpoint-8.old", its name while a save replaces it.
std::optional<std::int64_t> step_of(std::string_view name) {
  if (name.starts_with('.') && name.ends_with(kAside))
    name = name.substr(1, name.size() - 1 - kAside.size());
  if (!name.starts_with(kPrefix)) return std::nullopt;
  return number_in(name.substr(kPrefix.size()));
}

// ".checkpoint-8.tmp-4711-0", a draft, or ".config.json.tmp-4711-3", a file being written.
bool is_temporary(std::string_view name) {
  const auto mark = name.rfind(kTemporary);
  if (!name.starts_with('.') || mark == name.npos || mark == 0) return false;
  const auto whose = name.substr(mark + kTemporary.size());
  const auto dash = whose.find('-');
  return dash != whose.npos && number_in(whose.substr(0, dash)) &&
         number_in(whose.substr(dash + 1));
}

struct Candidate {
  std::int64_t step;
  std::string path;
};

// All folders that are named like a checkpoint, newest first.
std::vector<Candidate> candidates(const std::string& output_dir) {
  std::vector<Candidate> found;
  std::error_code error;
  for (fs::directory_iterator at(output_dir, error), end; !error && at != end; at.increment(error))
    if (const auto step = step_of(at->path().filename().string()); step && at->is_directory(error))
      found.push_back({*step, at->path().string()});
  if (error && error != std::errc::no_such_file_or_directory)
    throw std::runtime_error(fmt::format("cannot list {}: {}", output_dir, error.message()));
  // A checkpoint comes before the one of the same step that it replaced.
  std::ranges::sort(found, [](const Candidate& a, const Candidate& b) {
    return a.step != b.step ? a.step > b.step : a.path > b.path;
  });
  return found;
}

// Removes a checkpoint: renaming it to a hidden name first makes it disappear atomically for
// readers.
void remove_checkpoint(const std::string& path, std::int64_t step) {
  const std::string doomed = (fs::path(path).parent_path() / temporary_name(step)).string();
  if (::rename(path.c_str(), doomed.c_str()) != 0) throw_write_error("remove", path, errno);
  std::error_code error;
  fs::remove_all(doomed, error);
  if (error) throw_write_error("remove", doomed, error.value());
}

// If this fails, the next run removes it.
void remove_replaced(const std::string& path, std::int64_t step) noexcept try {
  remove_checkpoint(path, step);
} catch (const std::exception&) {
  return;
}

// Renames a folder over another. The target is missing only as long as the file system requires.
void put_in_place(const std::string& from, const std::string& to, std::int64_t step) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  if (errno != ENOTEMPTY && errno != EEXIST) throw_write_error("create", to, errno);
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    sync_folder(folder_of(to));
    remove_replaced(from, step);
    return;
  }
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP)
    throw_write_error("replace", to, errno);
  const std::string aside =
      fmt::format("{}/.{}{}", folder_of(to), fs::path(to).filename().string(), kAside);
  if (fs::exists(aside)) remove_checkpoint(aside, step);
  if (::rename(to.c_str(), aside.c_str()) != 0) throw_write_error("replace", to, errno);
  if (::rename(from.c_str(), to.c_str()) != 0) throw_write_error("create", to, errno);
  sync_folder(folder_of(to));
  remove_replaced(aside, step);
}

}  // namespace

CheckpointDraft::CheckpointDraft(std::string output_dir, std::int64_t step)
    : output_dir_(std::move(output_dir)), step_(step) {
  std::error_code error;
  fs::create_directories(output_dir_, error);
  if (error) throw_write_error("create", output_dir_, error.value());
  const std::string path = (fs::path(output_dir_) / temporary_name(step)).string();
  if (::mkdir(path.c_str(), 0777) != 0) throw_write_error("create a folder in", output_dir_, errno);
  path_ = path;
}

CheckpointDraft::~CheckpointDraft() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

std::string CheckpointDraft::target() const {
  return (fs::path(output_dir_) / fmt::format("{}{}", kPrefix, step_)).string();
}

std::vector<FileRecord> CheckpointDraft::records(const std::vector<FileRecord>& known) const {
  std::map<std::string, FileRecord> told;
  for (const FileRecord& record : known)
    if (!told.emplace(record.name, record).second)
      throw std::runtime_error(
          fmt::format("cannot save {}: there are two writers of {}", path_, record.name));

  std::vector<FileRecord> all;
  for (const auto& entry : fs::recursive_directory_iterator(path_)) {
    const std::string path = entry.path().string();
    if (entry.is_directory()) {
      sync_folder(path);
      continue;
    }
    const std::string name = fs::path(path).lexically_relative(path_).string();
    if (name.find(kTemporary) != name.npos)
      throw std::runtime_error(
          fmt::format("cannot save {}: the writer of {} did not finish", path_, name));
    const auto found = told.find(name);
    if (found == told.end()) sync_file(path);
    all.push_back(found == told.end() ? record_of(path_, name) : found->second);
    if (all.back().size != entry.file_size())
      throw std::runtime_error(fmt::format("cannot save {}: {} has {} bytes, but {} were written",
                                           path_, name, entry.file_size(), all.back().size));
    told.erase(name);
  }
  if (!told.empty())
    throw std::runtime_error(
        fmt::format("cannot save {}: {} is missing; all ranks must write to the same file system",
                    path_, told.begin()->first));
  std::ranges::sort(all, {}, &FileRecord::name);
  return all;
}

std::string CheckpointDraft::publish(const std::vector<FileRecord>& known,
                                     const std::map<std::string, std::string>& versions) {
  const Manifest manifest{.step = step_, .versions = versions, .files = records(known)};
  sync_folder(path_);
  write_file((fs::path(path_) / kManifestName).string(), manifest_text(manifest));
  put_in_place(path_, target(), step_);
  path_.clear();
  sync_folder(output_dir_);
  return target();
}

FoundCheckpoint find_newest_complete(const std::string& output_dir, int threads,
                                     const std::function<void(const Manifest&)>& usable) {
  FoundCheckpoint found;
  for (const auto& [step, path] : candidates(output_dir)) {
    try {
      if (usable) usable(read_manifest(path));
      const Manifest manifest = verify(path, threads);
      if (manifest.step != step)
        throw std::runtime_error(fmt::format("its manifest is of step {}", manifest.step));
      found.path = path;
      found.step = step;
      return found;
    } catch (const std::exception& e) {
      found.skipped.push_back(fmt::format("{} is skipped: {}", path, e.what()));
    }
  }
  return found;
}

bool has_checkpoint(const std::string& output_dir) noexcept try {
  return !candidates(output_dir).empty();
} catch (const std::exception&) {
  return false;
}

namespace {

// Those with a manifest, newest first.
std::vector<Candidate> own_checkpoints(const std::string& output_dir) {
  std::vector<Candidate> ours;
  for (Candidate& candidate : candidates(output_dir)) try {
      read_manifest(candidate.path);
      ours.push_back(std::move(candidate));
    } catch (const std::exception&) {
      continue;  // incomplete or not ours: find_newest_complete reports it
    }
  return ours;
}

}  // namespace

std::vector<std::string> remove_all(const std::string& output_dir) {
  std::vector<std::string> gone;
  for (const auto& [step, path] : own_checkpoints(output_dir)) {
    remove_checkpoint(path, step);
    gone.push_back(path);
  }
  return gone;
}

std::vector<std::string> rotate(const std::string& output_dir, std::int64_t limit,
                                const std::vector<std::int64_t>& kept) {
  std::vector<std::string> gone;
  if (limit <= 0) return gone;
  const auto ours = own_checkpoints(output_dir);
  auto left = static_cast<std::int64_t>(ours.size());
  std::exception_ptr error;
  for (std::size_t i = ours.size(); i-- > 1 && left > limit;) {
    if (std::ranges::find(kept, ours[i].step) != kept.end()) continue;
    --left;
    try {
      remove_checkpoint(ours[i].path, ours[i].step);
      gone.push_back(ours[i].path);
    } catch (const std::exception&) {
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
  return gone;
}

std::vector<std::string> remove_unfinished_saves(const std::string& output_dir) {
  std::vector<std::string> gone;
  std::error_code error;
  for (fs::directory_iterator at(output_dir, error), end; !error && at != end; at.increment(error))
    if (is_temporary(at->path().filename().string())) gone.push_back(at->path().string());
  for (const std::string& path : gone) fs::remove_all(path, error);
  return gone;
}

}  // namespace mgpu::checkpoint
