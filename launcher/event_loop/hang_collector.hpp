#pragma once

#include <boost/asio/io_context.hpp>

#include <functional>
#include <vector>

#include "launcher/hang_evidence/collect.hpp"
#include "launcher/lifecycle/hang_watch.hpp"
#include "launcher/output/file_thread.hpp"
#include "launcher/ranks/inherited.hpp"
#include "launcher/ranks/pausable_timer.hpp"
#include "launcher/ranks/worker_socket.hpp"

namespace mgpu::launcher {

// Collects the evidence of a hang without blocking the event loop: asks the ranks that can answer
// in which collective they are, and examines their processes in a thread.
class HangCollector {
 public:
  HangCollector(boost::asio::io_context& io, WorkerSocket& workers, const Inherited& inherited);
  HangCollector(const HangCollector&) = delete;
  HangCollector& operator=(const HangCollector&) = delete;

  // Calls `done` in the event loop. The collectives of the request are filled in here.
  void collect(EvidenceRequest request, std::function<void(HangFindings)> done);

 private:
  void examine(EvidenceRequest request, std::function<void(HangFindings)> done);

  WorkerSocket& workers_;
  const Inherited& inherited_;
  PausableTimer answers_;
  FileThread thread_;  // of its own: the ranks' log files do not wait for a debugger
};

// The hang with what the evidence says about its cause: a rank that can be ended, one of `running`,
// replaces the one that was assumed. Pure.
Hang with_findings(Hang hang, const HangFindings& findings, const std::vector<int>& running);

}  // namespace mgpu::launcher
