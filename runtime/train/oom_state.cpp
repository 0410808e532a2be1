#include "runtime/train/oom_state.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <string_view>
#include <utility>

#include "runtime/checkpoint/file.hpp"

namespace mgpu::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kCheckpoint = "checkpoint-";
constexpr std::size_t kLongestProgress = 256 << 20;
constexpr std::size_t kLongestOomFile = 1 << 20;

// The checkpoints by their names, the newest first. They may be incomplete.
std::vector<fs::path> checkpoints_in(const std::string& output_dir) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(output_dir, error)) {
    const auto name = entry.path().filename().string();
    if (!name.starts_with(kCheckpoint)) continue;
    std::int64_t step = 0;
    const auto* end = name.data() + name.size();
    const auto [stop, failed] = std::from_chars(name.data() + kCheckpoint.size(), end, step);
    if (failed == std::errc() && stop == end) found.emplace_back(step, entry.path());
  }
  std::ranges::sort(found, std::greater());
  std::vector<fs::path> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

}  // namespace

std::optional<OomState> oom_in_checkpoint(const std::string& output_dir,
                                          const std::string& wanted) {
  if (wanted == "no") return {};
  const bool newest = wanted == "auto" || wanted == "true";
  for (const auto& folder : newest ? checkpoints_in(output_dir) : std::vector{fs::path(wanted)}) {
    const auto file = (folder / "trainer_state.json").string();
    try {
      return parse_progress(checkpoint::read_file(file, kLongestProgress), file).oom;
    } catch (const std::exception&) {
      continue;
    }
  }
  return {};
}

std::optional<OomState> oom_in_file(const std::string& output_dir) {
  const auto file = fs::path(output_dir) / kOomFile;
  try {
    if (!fs::exists(file)) return {};
    return parse_oom_state(checkpoint::read_file(file.string(), kLongestOomFile), file.string());
  } catch (const std::exception&) {
    return {};
  }
}

OomState remembered(const std::optional<OomState>& saved, const std::optional<OomState>& recorded,
                    std::int64_t oom_count, const std::vector<std::string>& jobs) {
  const auto same_job = [&](const OomState& then) {
    return then.oom_count <= oom_count &&
           std::ranges::any_of(then.jobs, [&](const std::string& job) {
             return !job.empty() && std::ranges::find(jobs, job) != jobs.end();
           });
  };
  OomState state = saved.value_or(OomState());
  if (!same_job(state)) state.oom_count = 0;
  // An attempt writes the file when it begins, with what its checkpoint remembered: only a
  // checkpoint of a later attempt has more.
  if (recorded && same_job(*recorded) && recorded->oom_count >= state.oom_count) {
    state.changes = recorded->changes;
    state.pieces = std::max(state.pieces, recorded->pieces);
    state.oom_count = recorded->oom_count;
  }
  state.jobs = jobs;
  return state;
}

}  // namespace mgpu::train
