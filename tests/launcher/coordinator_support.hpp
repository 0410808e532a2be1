#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launcher/nodes/coordinator.hpp"
#include "tests/support/catch.hpp"

namespace mgpu::tests {

// A Coordinator with a clock that only the test advances, and all its decisions.
struct CoordinatedJob {
  using Settings = launcher::Coordinator::Settings;
  using NodeId = launcher::NodeId;
  using Time = launcher::LeaderTime;
  using Outcome = rendezvous::Outcome;

  Time now = std::chrono::hours(1);
  launcher::Coordinator coordinator;
  launcher::Coordinator::Actions actions;

  explicit CoordinatedJob(const Settings& settings, launcher::JobCounts counts = {})
      : coordinator(settings, counts, now) {}

  static Settings fixed(int nodes) {
    return {.min_nodes = nodes, .max_nodes = nodes, .static_ranks = true};
  }
  static Settings elastic(int least, int most) { return {.min_nodes = least, .max_nodes = most}; }
  static Settings with_restarts(Settings settings, int restarts,
                                std::chrono::milliseconds retry_delay = {}) {
    settings.limits = {restarts, retry_delay};
    return settings;
  }

  void note(launcher::Coordinator::Actions more) {
    for (auto& action : more) actions.push_back(std::move(action));
  }
  // Forgets all decisions so far, so that a test looks at the later ones only.
  void forget() { actions.clear(); }

  void join(NodeId id, rendezvous::Join join = {}) {
    if (join.host.empty()) join.host = "host" + std::to_string(id);
    note(coordinator.joined(id, join, now));
  }
  void join_all(int nodes) {
    for (int i = 0; i < nodes; ++i)
      join(static_cast<NodeId>(i + 1), {.node_rank = i, .leads = i == 0});
  }
  int round() const { return coordinator.counts().rounds - 1; }
  void failing(NodeId id, int signo = 0) {
    note(coordinator.failing(id, {.round = round(), .when = now.count(), .signo = signo}, now));
  }
  void end(NodeId id, Outcome outcome) {
    note(coordinator.ended(id, {.round = round(), .outcome = outcome}, now));
  }
  void fail(NodeId id, Time when, int status = 1, const std::string& cause = "exit_status",
            Time lasted = std::chrono::hours(1), int rank = -1, std::int64_t last_step = -1) {
    note(coordinator.ended(id,
                           {.round = round(),
                            .outcome = Outcome::failed,
                            .when = when.count(),
                            .cause = cause,
                            .status = status,
                            .lasted = lasted.count(),
                            .rank = rank,
                            .last_step = last_step},
                           now));
  }
  void leave(NodeId id, int signo = 0) {
    note(coordinator.leaves(id, {.signo = signo, .why = "goes"}, now));
  }
  void lose(NodeId id, Time last_heartbeat, bool certainly_ended = false) {
    note(coordinator.gone(id, last_heartbeat, certainly_ended, "it is silent", now));
  }
  void tick(Time by = Time(0)) {
    now += by;
    note(coordinator.tick(now));
  }

  template <class Kind>
  std::vector<Kind> all() const {
    std::vector<Kind> found;
    for (const auto& action : actions)
      if (const auto* one = std::get_if<Kind>(&action)) found.push_back(*one);
    return found;
  }
  // The messages of this type that were sent to nodes, in order.
  template <class Kind>
  std::vector<std::pair<NodeId, Kind>> sent() const {
    std::vector<std::pair<NodeId, Kind>> found;
    for (const auto& tell : all<launcher::SendMessage>())
      if (const auto* message = std::get_if<Kind>(&tell.message))
        found.emplace_back(tell.node, *message);
    return found;
  }
  template <class Kind>
  std::vector<NodeId> recipients() const {
    std::vector<NodeId> nodes;
    for (const auto& [node, message] : sent<Kind>()) nodes.push_back(node);
    return nodes;
  }
  // The nodes of the newest round that was started since the last forget().
  std::vector<NodeId> started_round() const {
    const auto rounds = all<launcher::StartRound>();
    return rounds.empty() ? std::vector<NodeId>() : rounds.back().nodes;
  }
  std::string phase() const { return coordinator.phase(); }
  // The status of a job that has ended; -1 if it has not.
  int status() const {
    const auto over = all<launcher::JobEnded>();
    return over.empty() ? -1 : over.back().status;
  }
};

}  // namespace mgpu::tests
