// The part of EventLoop that answers the watches over the running ranks: their progress, the
// evidence of a hang, their memory, and what others are shown of it.
#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "launcher/event_loop/event_loop.hpp"
#include "launcher/memory/process_memory.hpp"

namespace mgpu::launcher {

ActivitySigns EventLoop::activity_signs() const {
  const auto& chosen = options_.hang_activity;
  const auto has = [&](const char* sign) {
    return std::ranges::find(chosen, sign) != chosen.end();
  };
  return {.output = has("output"), .cpu = has("cpu"), .gpu = has("gpu")};
}

ActivitySample EventLoop::activity() const {
  ActivitySample sample{.ranks = {}, .gpu_percent = memory_monitor_.busiest_gpu()};
  const bool cpu = activity_signs().cpu;
  for (int rank = 0; rank < ranks_.size(); ++rank)
    if (ranks_.running(rank))
      sample.ranks.push_back({plan_.placement.base_rank + rank, output_.bytes_from(rank),
                              cpu ? cpu_time_of(ranks_.pid_of(rank)) : Milliseconds(0)});
  return sample;
}

ProgressWatch::Callbacks EventLoop::progress_callbacks() {
  return {.read_waiting = [this] { worker_socket_.take_waiting(); },
          .activity = [this] { return activity(); },
          .suspended =
              [this] {
                auto ranks = hang_collector_.suspended();
                for (int& rank : ranks) rank += plan_.placement.base_rank;
                return ranks;
              },
          .held_up = [this] { return output_.full(); },
          .running = [this] { return supervisor_.active() && !supervisor_.stopping(); },
          .collect_evidence = [this](const Hang& hang,
                                     const auto& done) { collect_evidence_of(hang, done); },
          .hung = [this](const Hang& hang) { end_hang(hang); },
          .straggler =
              [this](const Straggler& slow) {
                // In a multi-node job the leader compares the ranks of all nodes.
                if (!session_) journal_.note(straggler_line(slow, journal_.host()));
              },
          .looked =
              [this] {
                if (session_) session_->report_progress(progress_.progress(), progress_.idle());
                show_status();
              },
          .note = [this](auto line) { journal_.note(line); }};
}

void EventLoop::collect_evidence_of(const Hang& hang, const ProgressWatch::Done& done) {
  const char* path = std::getenv("PATH");
  EvidenceRequest request{.nccl_dir = attempt_.nccl_dir, .path = path ? path : ""};
  if (!attempt_.log_dir.empty()) request.folder = attempt_.log_dir + "/hang";
  std::vector<int> running;
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    const int number = plan_.placement.base_rank + rank;
    if (ranks_.running(rank)) running.push_back(number);
    request.ranks.push_back(
        {.rank = number, .pid = ranks_.running(rank) ? ranks_.pid_of(rank) : 0});
  }
  hang_collector_.collect(std::move(request), [this, hang, done, running](const auto& findings) {
    if (!findings.problem.empty()) journal_.note(findings.problem);
    done(with_findings(hang, findings, running));
  });
}

void EventLoop::end_hang(const Hang& hang) {
  suspended_ = hang_collector_.suspended();
  feed(HangFound{hang.rank - plan_.placement.base_rank});
  if (session_ && supervisor_.first_failed() >= 0) session_->report_failure();
}

MemoryMonitor::Callbacks EventLoop::memory_callbacks() {
  return {.note = [this](auto line) { journal_.note(line); },
          .running = [this](int rank) { return ranks_.running(rank) ? ranks_.pid_of(rank) : 0; },
          .kill = [this](int rank) { ranks_.signal_group(rank, SIGKILL); },
          .sampled =
              [this](const auto& request, const auto& sample) {
                if (status_note_) status_note_->show_memory(request, sample);
              }};
}

// For `mgpu-run status`; a multi-node job's leader answers it.
void EventLoop::show_status() {
  if (!status_note_ || supervisor_.done()) return;
  status_note_->show(supervisor_.phase(), std::max(0, supervisor_.attempt()), progress_.progress());
}

}  // namespace mgpu::launcher
