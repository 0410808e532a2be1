#include "launcher/event_loop/hang_collector.hpp"

#include <algorithm>
#include <utility>

namespace mgpu::launcher {
namespace {

constexpr std::chrono::milliseconds kAnswers{300};

}  // namespace

HangCollector::HangCollector(boost::asio::io_context& io, WorkerSocket& workers,
                             const RankGroup& ranks, const Inherited& inherited)
    : workers_(workers), ranks_(ranks), inherited_(inherited), answers_(io), thread_(io) {}

std::vector<int> HangCollector::suspended() const {
  return suspended_before_ ? *suspended_before_ : ranks_.suspended();
}

void HangCollector::collect(EvidenceRequest request, std::function<void(HangFindings)> done) {
  if (!workers_.request_dumps()) return examine(std::move(request), std::move(done));
  answers_.start(kAnswers, [this, request = std::move(request), done = std::move(done)]() mutable {
    workers_.take_waiting();
    examine(std::move(request), std::move(done));
  });
}

void HangCollector::examine(EvidenceRequest request, std::function<void(HangFindings)> done) {
  for (auto& rank : request.ranks) rank.collective = workers_.collective_of(rank.rank);
  suspended_before_ = suspended();
  ++examinations_;
  thread_.ask([request = std::move(request),
               inherited = inherited_] { return collect_evidence(request, inherited); },
              [this, done = std::move(done)](HangFindings findings) {
                if (--examinations_ == 0) suspended_before_.reset();
                done(std::move(findings));
              });
}

Hang with_findings(Hang hang, const HangFindings& findings, const std::vector<int>& running) {
  using Evidence = Hang::Evidence;
  hang.evidence = findings.folder;
  const auto& [odd, reason] = findings.odd;
  const bool other = odd && std::ranges::find(hang.like, *odd) == hang.like.end();
  if (other) hang.why = Evidence::none;  // what was reported does not explain it
  const bool explained = hang.why == Evidence::suspended || (!odd && hang.why != Evidence::none);
  if (!explained) hang.reason = reason;
  if (odd && std::ranges::find(running, *odd) != running.end()) hang.rank = *odd;
  return hang;
}

}  // namespace mgpu::launcher
