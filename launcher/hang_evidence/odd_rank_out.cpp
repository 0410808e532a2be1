#include "launcher/hang_evidence/odd_rank_out.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace mgpu::launcher {
namespace {

using Ranks = std::vector<const RankState*>;

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

bool in_folder(const PythonFrame& frame, std::string_view folder) {
  return frame.file.find(folder) != std::string::npos;
}

std::string frame_place(const PythonFrame& frame) {
  return fmt::format("{}:{}", base_name(frame.file), frame.line);
}

// The call of torch.distributed in which a stack is, and where the program made it.
struct PythonCall {
  std::string name;
  std::string made_at;  // empty: unknown
};

std::optional<PythonCall> torch_call(const std::vector<PythonFrame>& stack) {
  std::optional<PythonCall> call;
  bool left = false;
  for (const auto& frame : stack) {  // from the innermost call on
    if (!in_folder(frame, "/torch/")) {
      if (call) call->made_at = frame_place(frame);
      break;
    }
    const bool inside = in_folder(frame, "/torch/distributed/");
    // c10d's decorators are calls of their own.
    if (inside && !left && (!call || !frame.file.ends_with("c10d_logger.py")))
      call = {frame.function, {}};
    left |= call && !inside;
  }
  return call;
}

// A function of a library for collectives that the main thread is in; empty: none.
std::string native_call(const std::vector<std::string>& stack) {
  constexpr std::array<std::string_view, 5> kLibraries = {"gloo::", "c10d::", "nccl", "MPI_",
                                                          "mgpu::comm::"};
  for (const auto& function : stack)
    if (std::ranges::any_of(kLibraries, [&](auto name) { return function.starts_with(name); }))
      return function.substr(0, function.find('('));
  return {};
}

// The innermost call of the program itself: not of a library that is installed.
const PythonFrame* own_frame(const std::vector<PythonFrame>& stack) {
  for (const auto& frame : stack)
    if (!in_folder(frame, "/site-packages/") && !in_folder(frame, "/dist-packages/") &&
        !in_folder(frame, "/lib/python") && !frame.file.starts_with('<'))
      return &frame;
  return stack.empty() ? nullptr : &stack.front();
}

std::string python_activity(const std::vector<PythonFrame>& stack) {
  if (const auto call = torch_call(stack))
    return call->made_at.empty() ? call->name : fmt::format("{} ({})", call->name, call->made_at);
  const auto* own = own_frame(stack);
  auto in_own = fmt::format("{} in {}", frame_place(*own), own->function);
  if (own == &stack.front()) return in_own;
  return fmt::format("{}, which called {} ({})", in_own, stack.front().function,
                     frame_place(stack.front()));
}

std::string rank_list(const Ranks& ranks) {
  std::vector<int> numbers;
  for (const auto* rank : ranks) numbers.push_back(rank->rank);
  constexpr std::size_t kShown = 8;
  const bool all = numbers.size() <= kShown;
  if (!all) numbers.resize(kShown);
  return fmt::format("rank{} {}{}", ranks.size() > 1 ? "s" : "", fmt::join(numbers, ", "),
                     all ? "" : fmt::format(" and {} more", ranks.size() - kShown));
}

using Key = std::function<std::string(const RankState&)>;
using Groups = std::map<std::string, Ranks>;

Groups groups_by(const std::vector<RankState>& ranks, const Key& key) {
  Groups groups;
  for (const auto& rank : ranks) groups[key(rank)].push_back(&rank);
  return groups;
}

// The only group that is smaller than all others, and the largest of the others; both belong to the
// groups.
struct Minority {
  const Ranks* few;
  const Ranks* many;
};

std::optional<Minority> minority(Groups&&) = delete;

std::optional<Minority> minority(const Groups& groups) {
  if (groups.size() < 2) return std::nullopt;
  std::vector<const Ranks*> by_size;
  for (const auto& [key, ranks] : groups) by_size.push_back(&ranks);
  std::ranges::stable_sort(by_size, {}, [](const Ranks* ranks) { return ranks->size(); });
  if (by_size[0]->size() == by_size[1]->size() && by_size.size() == 2) return std::nullopt;
  // Several groups of one rank each, and the others together: any of them may be the cause.
  if (by_size.back()->size() == by_size.front()->size()) return std::nullopt;
  return Minority{by_size.front(), by_size.back()};
}

OddRank first_of(const Ranks& odd, const std::string& verb_and_rest) {
  return {odd.front()->rank, fmt::format("{} {}", rank_list(odd), verb_and_rest)};
}

std::string_view is_or_are(const Ranks& ranks) {
  return ranks.size() > 1 ? "are" : "is";
}

// Ranks in a state that needs no comparison, unless all are in it.
std::optional<OddRank> in_state(const std::vector<RankState>& ranks, std::string_view states,
                                const std::function<std::string(const RankState&)>& what) {
  Ranks found;
  for (const auto& rank : ranks)
    if (states.find(rank.process_state) != std::string_view::npos) found.push_back(&rank);
  if (found.empty() || found.size() == ranks.size()) return std::nullopt;
  return first_of(found, fmt::format("{} {}", is_or_are(found), what(*found.front())));
}

std::string collective_text(const CollectiveState& state) {
  return fmt::format("{} (collective {}{})", state.name, state.sequence,
                     state.elements < 0 ? "" : fmt::format(", {} elements", state.elements));
}

// From what the ranks themselves report about their collectives.
std::optional<OddRank> by_collective(const std::vector<RankState>& ranks) {
  if (!std::ranges::all_of(ranks, [](const auto& rank) { return rank.collective.has_value(); }))
    return std::nullopt;
  Ranks waiting, others;
  for (const auto& rank : ranks) (rank.collective->waiting ? waiting : others).push_back(&rank);
  if (waiting.empty()) return std::nullopt;
  const auto most = std::ranges::max(
      waiting, {}, [](const RankState* rank) { return rank->collective->sequence; });
  if (!others.empty())
    return first_of(others, fmt::format("{} not in a collective operation, while {} {} for {}",
                                        is_or_are(others), rank_list(waiting),
                                        waiting.size() > 1 ? "wait" : "waits",
                                        collective_text(*most->collective)));
  Ranks behind;
  for (const auto* rank : waiting)
    if (rank->collective->sequence < most->collective->sequence) behind.push_back(rank);
  if (!behind.empty())
    return first_of(behind, fmt::format("{} still in {}, while rank {} is in {}", is_or_are(behind),
                                        collective_text(*behind.front()->collective), most->rank,
                                        collective_text(*most->collective)));
  const auto groups = groups_by(ranks, [](const RankState& rank) {
    return fmt::format("{} {}", rank.collective->name, rank.collective->elements);
  });
  if (const auto odd = minority(groups))
    return first_of(*odd->few, fmt::format("{} in {}, while {} {} in {}", is_or_are(*odd->few),
                                           collective_text(*odd->few->front()->collective),
                                           rank_list(*odd->many), is_or_are(*odd->many),
                                           collective_text(*odd->many->front()->collective)));
  return std::nullopt;
}

// Ranks that differ in what `key` returns; an empty key is a rank in no collective.
std::optional<OddRank> by_activity(const std::vector<RankState>& ranks, const Key& call) {
  const auto groups = groups_by(ranks, call);
  if (groups.size() < 2) return std::nullopt;
  if (const auto none = groups.find(""); none != groups.end()) {
    const auto& busy = std::ranges::max_element(groups, {}, [](const auto& group) {
                         return group.first.empty() ? 0 : group.second.size();
                       })->second;
    return first_of(
        none->second,
        fmt::format("{} not in a collective operation: {} {}, while {} {} in {}",
                    is_or_are(none->second), none->second.size() > 1 ? "they are at" : "it is at",
                    activity_of(*none->second.front()), rank_list(busy), is_or_are(busy),
                    activity_of(*busy.front())));
  }
  const auto odd = minority(groups);
  if (!odd) return std::nullopt;
  return first_of(*odd->few, fmt::format("{} in {}, while {} {} in {}", is_or_are(*odd->few),
                                         activity_of(*odd->few->front()), rank_list(*odd->many),
                                         is_or_are(*odd->many), activity_of(*odd->many->front())));
}

std::optional<OddRank> by_stack(const std::vector<RankState>& ranks, const Key& key) {
  const auto groups = groups_by(ranks, key);
  const auto odd = minority(groups);
  if (!odd) return std::nullopt;
  return first_of(*odd->few, fmt::format("{} at {}, while {} {} at {}", is_or_are(*odd->few),
                                         activity_of(*odd->few->front()), rank_list(*odd->many),
                                         is_or_are(*odd->many), activity_of(*odd->many->front())));
}

// Collectives of NCCL only enter the queue of the GPU. The program waits for the queue.
bool waits_for_gpu(const std::vector<PythonFrame>& stack) {
  return !stack.empty() && in_folder(stack.front(), "/torch/cuda/") &&
         (stack.front().function == "synchronize" || stack.front().function == "wait");
}

std::string call_name(const RankState& rank) {
  if (const auto call = torch_call(rank.python)) return call->name;
  if (waits_for_gpu(rank.python)) return "synchronize";
  return rank.python.empty() ? native_call(rank.native) : std::string();
}

std::string call_place(const RankState& rank) {
  const auto call = torch_call(rank.python);
  return call ? fmt::format("{} {}", call->name, call->made_at) : call_name(rank);
}

std::string innermost_own(const RankState& rank) {
  if (rank.python.empty()) return {};
  return fmt::format("{} {}", frame_place(*own_frame(rank.python)), rank.python.front().function);
}

std::string innermost_native(const RankState& rank) {
  return rank.native.empty() ? std::string() : rank.native.front();
}

std::string kernel_wait(const RankState& rank) {
  return rank.process_state == 'R' ? "R" : rank.kernel_function;
}

// No group is smaller than the others: both sides are shown.
OddRank undecided(const std::vector<RankState>& ranks) {
  const auto groups = groups_by(ranks, activity_of);
  if (groups.size() < 2) return {{}, "no rank differs from the others"};
  std::vector<std::string> parts;
  for (const auto& [activity, group] : groups)
    parts.push_back(fmt::format("{} {} at {}", rank_list(group), is_or_are(group), activity));
  constexpr std::size_t kShown = 4;
  if (parts.size() > kShown) parts.resize(kShown);
  return {{}, fmt::format("no single rank stands out: {}", fmt::join(parts, "; "))};
}

}  // namespace

std::string activity_of(const RankState& rank) {
  if (rank.collective && rank.collective->waiting) return collective_text(*rank.collective);
  const auto waits = rank.process_state == 'R' ? std::string(" (running)")
                     : rank.kernel_function.empty()
                         ? std::string()
                         : fmt::format(" (waits in {})", rank.kernel_function);
  if (!rank.python.empty())
    return python_activity(rank.python) + (torch_call(rank.python) ? std::string() : waits);
  if (const auto call = native_call(rank.native); !call.empty()) return call;
  if (!rank.native.empty()) return rank.native.front() + waits;
  return waits.empty() ? "an unknown location" : fmt::format("an unknown location{}", waits);
}

OddRank odd_rank_out(const std::vector<RankState>& ranks) {
  if (ranks.empty()) return {{}, "no rank could be examined"};
  const auto suspended = [](const RankState& rank) {
    return fmt::format("suspended by a signal; kill -CONT {} resumes it", rank.pid);
  };
  const auto gone = [](const RankState&) { return std::string("no longer running"); };
  const auto in_kernel = [](const RankState& rank) {
    return fmt::format(
        "in an uninterruptible system call{}, often because of a disk, a file server or a driver",
        rank.kernel_function.empty() ? "" : fmt::format(" ({})", rank.kernel_function));
  };
  if (auto odd = in_state(ranks, "Tt", suspended)) return *odd;
  if (auto odd = in_state(ranks, std::string_view("\0ZX", 3), gone)) return *odd;
  if (auto odd = in_state(ranks, "D", in_kernel)) return *odd;
  if (auto odd = by_collective(ranks)) return *odd;
  const bool stacks = std::ranges::all_of(
      ranks, [](const auto& rank) { return !rank.python.empty() || !rank.native.empty(); });
  if (stacks) {
    if (auto odd = by_activity(ranks, call_name)) return *odd;
    if (auto odd = by_activity(ranks, call_place)) return *odd;
    if (auto odd = by_stack(ranks, innermost_own)) return *odd;
    if (auto odd = by_stack(ranks, innermost_native)) return *odd;
  }
  if (auto odd = by_stack(ranks, kernel_wait)) return *odd;
  return undecided(ranks);
}

}  // namespace mgpu::launcher
