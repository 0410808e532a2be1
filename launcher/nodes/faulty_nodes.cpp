#include "launcher/nodes/faulty_nodes.hpp"

namespace mgpu::launcher {

FaultyNodes::Verdict FaultyNodes::assess(const Failure& failure, bool dispensable) {
  if (follows_rank_) return Verdict::none;
  if (policies_.of(failure.cause) != FailurePolicy::exclude_node || failure.on_other_nodes_too) {
    suspect_.reset();
    return Verdict::none;
  }
  const auto key = std::pair(failure.rank, failure.cause);
  for (const Suspect& former : faulty_) {
    if (former.host == failure.host || !former.failures.contains(key)) continue;
    follows_rank_ = true;
    cleared_ = former.node;
    return Verdict::follows_rank;
  }
  const bool again = suspect_ && suspect_->node == failure.node;
  if (!again) suspect_ = Suspect{.node = failure.node, .host = failure.host, .failures = {}};
  suspect_->failures.insert(key);
  if (!again || !dispensable) return Verdict::none;
  faulty_.push_back(*suspect_);
  suspect_.reset();
  return Verdict::faulty;
}

}  // namespace mgpu::launcher
