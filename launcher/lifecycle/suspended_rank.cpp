#include "launcher/lifecycle/suspended_rank.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "launcher/lifecycle/hang_watch.hpp"
#include "rendezvous/base/printable.hpp"

namespace mgpu::launcher {
namespace {

// What mgpu-train, torch, gloo and NCCL print when a collective does not finish.
bool has_timed_out(std::string_view text) {
  return std::ranges::any_of(
      std::array{"timed out", "Timed out", "timeout", "Timeout", "did not finish within"},
      [&](std::string_view words) { return text.find(words) != std::string_view::npos; });
}

}  // namespace

bool may_have_waited(const AttemptResult& attempt) {
  if (!attempt.first_failure || attempt.first_failure->suspended) return false;
  return attempt.cause.kind == Cause::Kind::hang || has_timed_out(attempt.cause.text) ||
         has_timed_out(attempt.stderr_tail);
}

void blame_suspended(AttemptResult& attempt) {
  const auto found = std::ranges::find_if(attempt.ranks, &RankResult::suspended);
  if (found == attempt.ranks.end() || !may_have_waited(attempt)) return;
  auto& cause = attempt.cause;
  const auto& suspended = *found;
  const auto place = suspended.host.empty() ? "" : fmt::format(" on {}", suspended.host);
  auto text =
      fmt::format("hang: rank {}{} was suspended by a signal or a debugger; rank {} {} for it: {}",
                  suspended.rank, place, attempt.first_failure->rank,
                  cause.text.starts_with("hang: ") ? "waited" : "timed out waiting", cause.text);
  cause = cause_of({.why = Hang::Evidence::suspended, .like = {suspended.rank}});
  cause.text = rendezvous::printable(text);
  attempt.first_failure = suspended;
  attempt.root_rank = suspended.rank;
}

const RankResult& first_to_exit(const AttemptResult& attempt) {
  const auto& first = *attempt.first_failure;
  if (!first.suspended) return first;
  const auto gave_up = std::ranges::find_if(attempt.ranks, [](const RankResult& rank) {
    return !rank.report.clean() && !rank.ended_by_us && !rank.replaced_after;
  });
  return gave_up == attempt.ranks.end() ? first : *gave_up;
}

}  // namespace mgpu::launcher
