// The part of Session that changes settings after attempts that ran out of memory.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "runtime/comm/text.hpp"
#include "runtime/config/resolve.hpp"
#include "runtime/train/oom_state.hpp"
#include "runtime/train/session.hpp"

namespace mgpu::train {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> changes_of(const std::vector<OomRemedy>& remedies) {
  std::vector<std::string> changes;
  for (const auto& remedy : remedies) changes.push_back(remedy.change);
  return changes;
}

}  // namespace

// Rank 0 reads it, and tells the others. Each node has a cookie of its own, and rank 0 may have
// been on another node before. A process that takes a lost rank's place is not connected yet: it
// reads for itself, and the other ranks compare it with theirs.
OomState Session::remembered_oom() {
  const char* cookie = getenv(rendezvous::variable::kJobCookie);
  std::vector<std::string> jobs = {cookie == nullptr ? "" : cookie};
  if (!takes_a_place())
    jobs = comm::gather_texts(*comm_, jobs.front(), device_, "all-gather of the job's cookies");
  std::ranges::sort(jobs);
  jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
  std::erase(jobs, "");
  const auto read = [&] {
    return remembered(oom_in_checkpoint(config_.output_dir, config_.resume_from_checkpoint),
                      contract_.oom_count > 0 ? oom_in_file(config_.output_dir) : std::nullopt,
                      contract_.oom_count, jobs);
  };
  if (takes_a_place()) return read();
  std::string text;
  if (comm_->rank() == 0) {
    const auto state = read();
    // If no attempt has run out of memory, there is nothing to share.
    if (state != OomState{.jobs = jobs}) text = oom_state_text(state);
  }
  text =
      comm::share_text(*comm_, text, device_, "broadcast of changes after running out of memory");
  return text.empty() ? OomState{.jobs = jobs} : parse_oom_state(text, kOomFile);
}

void Session::use_oom_remedies(PlanRequest& request) {
  if (config_.oom == OutOfMemory::fail && contract_.oom_count > 0)
    throw_recipe_error(
        "an earlier attempt ran out of memory, and with oom: fail the job ends; "
        "set oom: shrink to continue with settings that need less memory");
  if (config_.oom != OutOfMemory::shrink) return;
  oom_ = remembered_oom();
  const auto recipe = request.config;
  const auto ranks = comm_->world();
  auto changed = request;
  changed.config = with_changes(recipe, oom_.changes, ranks);
  auto remedies = oom_remedies(changed);
  const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(
      0, contract_.oom_count - std::exchange(oom_.oom_count, contract_.oom_count)));
  const bool enough = wanted <= remedies.size();
  remedies.resize(std::min(wanted, remedies.size()));
  std::ranges::move(changes_of(remedies), std::back_inserter(oom_.changes));
  if (!enough) throw_recipe_error(no_remedy_left(request, oom_.changes));
  request.config = with_changes(recipe, oom_.changes, ranks);
  config_.per_device_train_batch_size = request.config.per_device_train_batch_size;
  config_.grpo = request.config.grpo;
  config_.gradient_checkpointing = request.config.gradient_checkpointing;
  config_.recomputed_layers = request.config.recomputed_layers;
  config_.zero_stage = request.config.zero_stage;
  oom_.pieces = pieces_for(config_, oom_.pieces);
  if (wanted > 0) record_oom(oom_);
  if (const auto changes = changed_settings(recipe, request.config); !changes.empty())
    notes_.push_back(fmt::format(
        "an earlier attempt ran out of memory; the same steps are now computed with {}", changes));
  if (oom_.pieces > 1)
    notes_.push_back(fmt::format(
        "an earlier attempt ran out of memory; each micro-batch is divided into {} pieces",
        oom_.pieces));
}

void Session::divide_micro_batches(const StepOutcome& outcome, std::int64_t step) {
  if (outcome.indivisible) {  // smaller micro-batches cannot help
    auto state = oom_;
    std::ranges::move(changes_of(halvings(oom_remedies(*memory_plan_))),
                      std::back_inserter(state.changes));
    record_oom(state);
  }
  learner_->divide_micro_batches(outcome);
  const auto& ranks = outcome.out_of_memory;
  reporter_->note(fmt::format(
      "step {}: {} ran out of memory; each micro-batch is now divided into {} pieces (the step is "
      "repeated and has the same result, up to rounding)",
      step, fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", ")),
      learner_->pieces()));
}

// For the next attempt. If it cannot be written, that one may repeat in vain what this one tried.
void Session::record_oom(const OomState& state) const {
  if (contract_.rank == 0)
    std::ofstream(fs::path(config_.output_dir) / kOomFile) << oom_state_text(state);
}

}  // namespace mgpu::train
