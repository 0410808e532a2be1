#pragma once

#include <boost/asio/io_context.hpp>

#include <functional>
#include <optional>
#include <vector>

#include "launcher/hang_evidence/collect.hpp"
#include "launcher/lifecycle/hang_watch.hpp"
#include "launcher/output/file_thread.hpp"
#include "launcher/ranks/inherited.hpp"
#include "launcher/ranks/pausable_timer.hpp"
#include "launcher/ranks/rank_group.hpp"
#include "launcher/ranks/worker_socket.hpp"

namespace mgpu::launcher {

// Collects the evidence of a hang without blocking the event loop: asks the ranks that can answer
// in which collective they are, and examines their processes in a thread.
class HangCollector {
 public:
  HangCollector(boost::asio::io_context& io, WorkerSocket& workers, const RankGroup& ranks,
                const Inherited& inherited);
  HangCollector(const HangCollector&) = delete;
  HangCollector& operator=(const HangCollector&) = delete;

  // The ranks start again.
  void begin_attempt() { suspended_before_.reset(); }
  // Calls `done` in the event loop. The collectives of the request are filled in here.
  void collect(EvidenceRequest request, std::function<void(HangFindings)> done);
  // The local ranks that a signal or a debugger has suspended. While processes are examined, those
  // that were suspended before: the debuggers that we start suspend ranks too.
  std::vector<int> suspended() const;

 private:
  void examine(EvidenceRequest request, std::function<void(HangFindings)> done);

  WorkerSocket& workers_;
  const RankGroup& ranks_;
  const Inherited& inherited_;
  PausableTimer answers_;
  std::optional<std::vector<int>> suspended_before_;
  int examinations_ = 0;  // that have not ended
  FileThread thread_;     // of its own: the ranks' log files do not wait for a debugger
};

// The hang with what the evidence says about its cause: a rank that can be ended, one of `running`,
// replaces the one that was assumed. Pure.
Hang with_findings(Hang hang, const HangFindings& findings, const std::vector<int>& running);

}  // namespace mgpu::launcher
