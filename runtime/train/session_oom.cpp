// The part of Session that changes settings after attempts that ran out of memory.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

#include "runtime/checkpoint/file.hpp"
#include "runtime/comm/text.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/train/session.hpp"

namespace mgpu::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOomFile = "oom.json";
constexpr std::string_view kCheckpoint = "checkpoint-";
constexpr std::size_t kLongestProgress = 256 << 20;
constexpr std::size_t kLongestOomFile = 4096;

// The newest checkpoint by its name, which may not be complete; empty: none.
fs::path newest_checkpoint(const std::string& output_dir) {
  fs::path newest;
  std::int64_t most = -1;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(output_dir, error)) {
    const auto name = entry.path().filename().string();
    if (!name.starts_with(kCheckpoint)) continue;
    std::int64_t step = 0;
    const auto* end = name.data() + name.size();
    const auto [stop, failed] = std::from_chars(name.data() + kCheckpoint.size(), end, step);
    if (failed != std::errc() || stop != end || step <= most) continue;
    most = step;
    newest = entry.path();
  }
  return newest;
}

// What is remembered in a file; nothing if it cannot be read: training can do without.
template <class Parse>
std::optional<OomState> state_in(const fs::path& file, std::size_t longest, Parse parse) {
  try {
    if (!fs::exists(file)) return {};
    return parse(checkpoint::read_file(file.string(), longest), file.string());
  } catch (const std::exception&) {
    return {};
  }
}

std::optional<OomState> state_in_checkpoint(const TrainConfig& config) {
  const auto& wanted = config.resume_from_checkpoint;
  if (wanted == "no") return {};
  const bool newest = wanted == "auto" || wanted == "true";
  const auto folder = newest ? newest_checkpoint(config.output_dir) : fs::path(wanted);
  if (folder.empty()) return {};
  return state_in(folder / "trainer_state.json", kLongestProgress,
                  [](const std::string& text, const std::string& file) {
                    return parse_progress(text, file).oom;
                  });
}

std::optional<OomState> state_in_oom_file(const TrainConfig& config) {
  return state_in(fs::path(config.output_dir) / kOomFile, kLongestOomFile,
                  [](const std::string& text, const std::string& file) {
                    return std::optional(parse_oom_state(text, file));
                  });
}

}  // namespace

// What the checkpoint to resume from and an earlier attempt of this job remember. An attempt of the
// same job has counted some of MGPU_OOM_COUNT already.
OomState Session::remembered_oom() const {
  const char* cookie = getenv(rendezvous::variable::kJobCookie);
  OomState now{.oom_count = contract_.oom_count, .job = cookie == nullptr ? "" : cookie};
  now.remedies = now.oom_count;
  const auto same_job = [&](const OomState& then) {
    return !now.job.empty() && then.job == now.job && then.oom_count <= now.oom_count;
  };
  if (const auto saved = state_in_checkpoint(config_)) {
    now.remedies += saved->remedies - (same_job(*saved) ? saved->oom_count : 0);
    now.pieces = saved->pieces;
  }
  const auto recorded = state_in_oom_file(config_);
  if (recorded && same_job(*recorded))
    now.remedies = std::max(now.remedies, recorded->remedies + now.oom_count - recorded->oom_count);
  return now;
}

void Session::use_oom_remedies(PlanRequest& request) {
  if (config_.oom == OutOfMemory::fail && contract_.oom_count > 0)
    throw_recipe_error(
        "an earlier attempt ran out of memory, and with oom: fail it is not repeated");
  if (config_.oom != OutOfMemory::shrink) return;
  remedies_ = oom_remedies(request.config, comm_->world());
  oom_ = remembered_oom();
  // Without a lack of memory so far there is nothing to share.
  const bool nothing = oom_.remedies == 0 && oom_.pieces == 1;
  const bool decides = comm_->rank() == 0 || takes_a_place();
  const auto text = decides && !nothing ? oom_state_text(oom_) : std::string();
  const auto shared = takes_a_place()  // not connected yet; the other ranks compare it with theirs
                          ? text
                          : comm::share_text(*comm_, text, device_,
                                             "broadcast of the remedies for a lack of memory");
  oom_ = shared.empty() ? OomState{.oom_count = oom_.oom_count, .job = oom_.job}
                        : parse_oom_state(shared, kOomFile);
  const auto most = static_cast<std::int64_t>(remedies_.size());
  const auto used = static_cast<std::size_t>(std::min(oom_.remedies, most));
  if (oom_.remedies > most && contract_.oom_count > 0)
    throw_recipe_error(no_remedy_left(request, remedies_));
  oom_.remedies = std::min(oom_.remedies, most);
  if (used > 0) {
    const auto& remedy = remedies_[used - 1];
    for (auto* config : {&config_, &request.config}) {
      config->per_device_train_batch_size = remedy.per_device;
      config->gradient_checkpointing = remedy.recompute;
      config->zero_stage = remedy.zero_stage;
    }
  }
  if (used > 0)
    notes_.push_back(
        fmt::format("an earlier attempt ran out of memory; the same steps are now computed with {}",
                    changes_of(remedies_, used)));
  if (oom_.pieces > 1)
    notes_.push_back(fmt::format(
        "an earlier attempt ran out of memory; each micro-batch is divided into {}", oom_.pieces));
}

void Session::divide_micro_batches(const StepOutcome& outcome, std::int64_t step) {
  if (outcome.indivisible) record_indivisible();
  learner_->divide_micro_batches(outcome);
  const auto& ranks = outcome.out_of_memory;
  reporter_->note(fmt::format(
      "step {}: {} ran out of memory; each micro-batch is now divided into {} (the step is "
      "repeated and has the same result, up to rounding)",
      step, fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", ")),
      learner_->pieces()));
}

void Session::record_indivisible() const {
  auto state = oom_;
  state.remedies = std::max(state.remedies, static_cast<std::int64_t>(halvings(remedies_)));
  if (contract_.rank != 0) return;
  // If it cannot be written, a restart tries smaller micro-batches in vain.
  std::ofstream(fs::path(config_.output_dir) / kOomFile) << oom_state_text(state);
}

}  // namespace mgpu::train
