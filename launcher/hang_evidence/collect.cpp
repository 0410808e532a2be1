#include "launcher/hang_evidence/collect.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <functional>
#include <string_view>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "launcher/hang_evidence/evidence_folder.hpp"
#include "launcher/hang_evidence/process_snapshot.hpp"
#include "launcher/hang_evidence/python_stacks.hpp"
#include "launcher/hang_evidence/stack_tools.hpp"
#include "launcher/lifecycle/text_lines.hpp"
#include "launcher/options/nccl_record.hpp"
#include "launcher/ranks/run_briefly.hpp"
#include "rendezvous/base/printable.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::launcher {
namespace {

using SteadyClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kMostProcesses = 64;  // of a rank
constexpr unsigned kMostDebuggers = 4;      // at a time
constexpr milliseconds kShortestDebugging{200};
constexpr milliseconds kRecordTime{3000};  // from the request to the file

std::string python_text(const PythonStacks& stacks) {
  std::string text;
  if (!stacks.problem.empty())
    text = fmt::format("Python stacks: {}\n", rendezvous::printable(stacks.problem));
  for (const auto& thread : stacks.threads) {
    text += fmt::format("Python thread {}, the innermost call first:\n", thread.id);
    for (const auto& frame : thread.frames)
      text += fmt::format("    {}:{} in {}\n", rendezvous::printable(frame.file), frame.line,
                          rendezvous::printable(frame.function));
  }
  return text;
}

// Requests the rank's record of NCCL: a thread of the rank looks at the pipe every second.
bool request_nccl_record(const std::string& folder, int rank) {
  const auto path = fmt::format("{}{}{}.pipe", folder, nccl_record::kPipe, rank);
  const rendezvous::UniqueFd pipe(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  return pipe && ::write(pipe.get(), "1\n", 2) == 2;
}

// False: there are too many threads already.
bool started_thread(std::vector<std::jthread>& threads, const std::function<void()>& work) {
  try {
    threads.emplace_back(work);
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

class Collection {
 public:
  Collection(const EvidenceRequest& request, const Inherited& inherited)
      : request_(request),
        inherited_(inherited),
        deadline_(SteadyClock::now() + request.limit),
        folder_(request.folder) {}

  HangFindings run() {
    const auto requested = SteadyClock::now();
    for (const auto& rank : request_.ranks) {
      if (!request_.nccl_dir.empty() && request_nccl_record(request_.nccl_dir, rank.rank))
        recording_.push_back(rank.rank);
      states_.push_back({.rank = rank.rank, .pid = rank.pid, .collective = rank.collective});
      notes_.emplace_back();
    }
    for (std::size_t i = 0; i < states_.size(); ++i) look_at(i);
    auto odd = odd_rank_out(states_);
    read_native_stacks(odd);
    take_nccl_records(requested + kRecordTime);
    odd = odd_rank_out(states_);
    odd.reason = rendezvous::printable(odd.reason);
    folder_.write("summary.txt", summary(odd));
    auto problem = folder_.problem();
    return {std::move(odd), problem.empty() ? folder_.path() : std::string(), std::move(problem)};
  }

 private:
  milliseconds left() const {
    return std::chrono::duration_cast<milliseconds>(deadline_ - SteadyClock::now());
  }

  // Moves the records to the other evidence; those that are not there in time stay where they are.
  void take_nccl_records(SteadyClock::time_point until) {
    if (folder_.path().empty()) return;
    until = std::min(until, deadline_);
    while (true) {
      std::erase_if(recording_, [&](int rank) {
        const auto name = fmt::format("{}{}", nccl_record::kFile, rank);
        return ::rename((request_.nccl_dir + name).c_str(), (folder_.path() + name).c_str()) == 0;
      });
      if (recording_.empty() || SteadyClock::now() >= until) return;
      std::this_thread::sleep_for(milliseconds(50));
    }
  }

  void look_at(std::size_t i) {
    auto& state = states_[i];
    std::string text;
    for (const pid_t pid : family_of(state.pid)) {
      const auto process = snapshot_of(pid);
      if (process.state == 0) continue;
      const auto python = read_python_stacks(pid);
      text += fmt::format("{}{}{}\n", text.empty() ? "" : "\n", process.text, python_text(python));
      if (stands_for_rank(pid, state, python)) {
        state.pid = pid;
        state.process_state = process.state;
        state.kernel_function = process.kernel_function;
        for (const auto& thread : python.threads)
          if (thread.id == pid) state.python = thread.frames;
        notes_[i] = python.problem;
      }
    }
    if (text.empty()) notes_[i] = "its process no longer exists";
    folder_.write(fmt::format("rank_{}.txt", state.rank), text.empty() ? notes_[i] + "\n" : text);
  }

  // A program such as a shell only waits for the one that it has started.
  static bool stands_for_rank(pid_t pid, const RankState& state, const PythonStacks& python) {
    if (pid == state.pid) return true;
    return state.kernel_function == "do_wait" && state.python.empty() && !python.threads.empty();
  }

  std::vector<pid_t> family_of(pid_t pid) const {
    if (pid == 0) return {};  // it has exited
    if (left() < request_.limit / 2) return {pid};
    auto family = process_and_descendants(pid);
    if (family.size() > kMostProcesses) family.resize(kMostProcesses);
    return family;
  }

  // The rank that seems to be the cause comes first, in case there is not enough time for all.
  void read_native_stacks(const OddRank& odd) {
    const auto tool = native_stack_tool(request_.path);
    if (!tool) {
      no_debugger_ = true;
      return;
    }
    std::vector<std::size_t> order(states_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return states_[i].rank != odd.rank; });
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      for (std::size_t at = next++; at < order.size(); at = next++) debug(*tool, order[at]);
    };
    // Reading the symbols takes seconds of CPU time; the first rank should not share its core.
    const auto threads = std::clamp(std::thread::hardware_concurrency() / 2, 1U, kMostDebuggers);
    std::vector<std::jthread> others;
    // With fewer threads than wanted, those that there are do the work.
    while (others.size() + 1 < std::min<std::size_t>(threads, order.size()))
      if (!started_thread(others, work)) break;
    work();
  }

  // Each thread has its own `i`.
  void debug(const StackTool& tool, std::size_t i) try {
    auto& state = states_[i];
    if (state.process_state == 0) return;
    if (left() < kShortestDebugging) {
      notes_[i] = fmt::format("not enough time to run {}", tool.name);
      return;
    }
    if (!notes_[i].empty()) add_py_spy(i);
    const auto run = run_briefly(tool.command(state.pid), inherited_, left());
    state.native = main_thread_functions(run.output);
    folder_.write(fmt::format("rank_{}_native.txt", state.rank),
                  rendezvous::printable_output(run.output));
    // A debugger that was killed may have left the signal with which it stops a process.
    if (run.timed_out && state.process_state != 'T') ::kill(state.pid, SIGCONT);
    if (run.timed_out)
      notes_[i] = fmt::format("{} did not finish in time", tool.name);
    else if (state.native.empty())
      notes_[i] =
          fmt::format("{} cannot read its stacks: {}", tool.name, last_complaint(run.output));
  } catch (const std::exception& failed) {
    notes_[i] = failed.what();
  }

  void add_py_spy(std::size_t i) {
    const auto tool = python_stack_tool(request_.path);
    if (!tool) return;
    const auto run = run_briefly(tool->command(states_[i].pid), inherited_, left());
    folder_.write(fmt::format("rank_{}_python.txt", states_[i].rank),
                  rendezvous::printable_output(run.output));
  }

  static std::string last_complaint(const std::string& output) {
    const auto line = last_line(output);
    return line.empty() ? "no output" : rendezvous::printable(line);
  }

  std::string summary(const OddRank& odd) const {
    auto text = fmt::format("{}\n\n", odd.reason);
    for (std::size_t i = 0; i < states_.size(); ++i) {
      const auto& state = states_[i];
      text += fmt::format("rank {} (pid {}, state {}): {}\n", state.rank, state.pid,
                          state.process_state == 0 ? '-' : state.process_state,
                          rendezvous::printable(activity_of(state)));
      if (!notes_[i].empty()) text += fmt::format("    {}\n", rendezvous::printable(notes_[i]));
    }
    for (const int rank : recording_)
      text += fmt::format("rank {} did not write its record of NCCL in time\n", rank);
    if (no_debugger_) text += "\nno native stacks: install eu-stack (elfutils) or gdb\n";
    return text;
  }

  const EvidenceRequest& request_;
  const Inherited& inherited_;
  const SteadyClock::time_point deadline_;
  EvidenceFolder folder_;
  std::vector<RankState> states_;
  std::vector<std::string> notes_;  // what could not be read of a rank
  std::vector<int> recording_;      // ranks that were asked for their record of NCCL
  bool no_debugger_ = false;
};

}  // namespace

HangFindings collect_evidence(const EvidenceRequest& request, const Inherited& inherited) try {
  return Collection(request, inherited).run();
} catch (const std::exception& failed) {
  return {{}, {}, fmt::format("cannot collect the evidence of the hang: {}", failed.what())};
}

}  // namespace mgpu::launcher
