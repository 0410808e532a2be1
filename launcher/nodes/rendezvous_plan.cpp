#include "launcher/nodes/rendezvous_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "launcher/nodes/master_address.hpp"
#include "rendezvous/base/spelling.hpp"

namespace mgpu::launcher {
namespace {

using rendezvous::shown;

constexpr int kStaticPort = 29500;  // torchrun's
constexpr int kDynamicPort = 29400;
constexpr double kYear = 365.0 * 86400;
constexpr std::size_t kMaxPrefixBytes = 512;

// torchrun's keys of --rdzv-conf, including those without effect here, to detect misspelt keys. The
// last two are ours.
constexpr std::string_view kKeys[] = {"join_timeout",
                                      "last_call_timeout",
                                      "keep_alive_interval",
                                      "keep_alive_max_attempt",
                                      "is_host",
                                      "timeout",
                                      "close_timeout",
                                      "heartbeat_timeout",
                                      "read_timeout",
                                      "store_type",
                                      "rank",
                                      "ttl",
                                      "user",
                                      "password",
                                      "cacert",
                                      "cert",
                                      "key",
                                      "protocol",
                                      "api_version",
                                      "prefix",
                                      "accept_unsigned_state"};

class Conf {
 public:
  explicit Conf(const Options& options)
      : values_(options.rdzv_conf), origin_(options.origin("rdzv-conf")) {
    std::vector<std::string> known;
    for (const auto key : kKeys) known.emplace_back(key);
    for (const auto& [key, value] : values_) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      const auto near = rendezvous::nearest(key, known);
      if (near.empty() && values_.contains("password"))  // this may be a part of it
        fail(fmt::format("unknown key beside password; need {} (a password cannot contain a comma)",
                         fmt::join(kKeys, ", ")));
      fail(fmt::format("{}: unknown key; {}", shown(key),
                       near.empty() ? fmt::format("need one of {}", fmt::join(kKeys, ", "))
                                    : fmt::format("did you mean {}?", near)));
    }
  }

  // An error about one setting.
  [[noreturn]] void fail(const std::string& what) const {
    throw UsageError(origin_.name + origin_.joint + what);
  }

  // An error about several settings.
  [[noreturn]] void fail_together(const std::string& what) const {
    throw UsageError(fmt::format("{}: {}", origin_.name, what));
  }

  std::optional<LeaderTime> seconds(const std::string& key) const {
    const auto found = values_.find(key);
    if (found == values_.end()) return std::nullopt;
    double value = 0;
    const char* const end = found->second.data() + found->second.size();
    const auto [stop, error] = std::from_chars(found->second.data(), end, value);
    if (error != std::errc{} || stop != end || !(value >= 0) || value > kYear)
      fail(fmt::format("{}={}: need seconds from 0 to a year, such as 30", key,
                       shown(found->second, 32)));
    return std::chrono::duration_cast<LeaderTime>(std::chrono::duration<double>(value));
  }

  std::string text(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? std::string() : found->second;
  }

  std::optional<bool> flag(const std::string& key) const {
    const auto found = values_.find(key);
    if (found == values_.end()) return std::nullopt;
    const std::string& word = found->second;
    for (const char* yes : {"1", "true", "True", "t", "y", "yes"})
      if (word == yes) return true;
    for (const char* no : {"0", "false", "False", "f", "n", "no"})
      if (word == no) return false;
    fail(fmt::format("{}={}: need true or false", key, shown(word, 32)));
  }

 private:
  const std::map<std::string, std::string>& values_;
  Origin origin_;
};

// Whether the node ranks are fixed in advance, as with torchrun. In an elastic job, or with an
// endpoint and no node rank, they are assigned when the nodes have joined.
bool is_static(const Options& options) {
  if (options.rdzv_backend != "static") return false;
  const bool numbered = options.was_given("node-rank") || options.was_given("master-addr");
  if (options.min_nodes != options.max_nodes)
    return options.was_given("rdzv-backend") || options.rdzv_endpoint.empty();
  return numbered || options.rdzv_endpoint.empty();
}

Coordinator::Settings rules_of(const Options& options, const Conf& conf) {
  Coordinator::Settings rules;
  rules.min_nodes = options.min_nodes;
  rules.max_nodes = options.max_nodes;
  rules.static_ranks = is_static(options);
  rules.keep_alive = options.keep_alive;
  // As in torchrun: a node is dead if this many consecutive heartbeats are missing.
  const auto interval = conf.seconds("keep_alive_interval");
  const auto attempts = conf.seconds("keep_alive_max_attempt");
  if (interval || attempts) {
    const auto times = std::max<std::int64_t>(
        std::chrono::duration_cast<std::chrono::seconds>(attempts.value_or(std::chrono::seconds(3)))
            .count(),
        1);
    const auto each = interval.value_or(std::chrono::seconds(5));
    if (std::chrono::duration<double>(each).count() * static_cast<double>(times) > kYear)
      conf.fail_together(
          "keep_alive_interval times keep_alive_max_attempt is more than a year; lower one of "
          "them");
    rules.keep_alive = each * times;
  }
  if (rules.keep_alive < std::chrono::milliseconds(500))
    conf.fail_together(
        "keep_alive_interval times keep_alive_max_attempt is less than 0.5 s; raise one of them");
  rules.grace = options.grace;
  rules.direct_store = options.direct_store;
  rules.join_timeout = conf.seconds("join_timeout").value_or(rules.join_timeout);
  if (rules.static_ranks) rules.join_timeout = conf.seconds("timeout").value_or(rules.join_timeout);
  rules.last_call = conf.seconds("last_call_timeout").value_or(rules.last_call);
  rules.limits = {options.max_restarts, options.retry_delay, options.restarts_renewed,
                  options.on_failure};
  return rules;
}

rendezvous::etcd::Access etcd_access(const Options& options, const Conf& conf) {
  try {
    return {
        .endpoints = rendezvous::etcd::parse_endpoints(options.rdzv_endpoint,
                                                       conf.text("protocol") == "https"),
        .user = conf.text("user"),
        .password = conf.text("password"),
        .tls = {
            .ca = conf.text("cacert"), .certificate = conf.text("cert"), .key = conf.text("key")}};
  } catch (const std::exception& problem) {
    throw UsageError(fmt::format("{}: {}", options.origin("rdzv-endpoint").name, problem.what()));
  }
}

// The given prefix of the keys in etcd, without the slash at its end.
std::string etcd_prefix(const Conf& conf) {
  std::string prefix = conf.text("prefix");
  if (prefix.empty()) return prefix;
  const auto is_usable = [](char c) { return c > ' ' && c <= '~'; };
  if (prefix.ends_with('/')) prefix.pop_back();
  if (!prefix.starts_with('/') || prefix.size() > kMaxPrefixBytes ||
      !std::all_of(prefix.begin(), prefix.end(), is_usable))
    conf.fail(
        fmt::format("prefix={}: need a path of at most {} characters, such as /mgpu-run/alice",
                    shown(conf.text("prefix")), kMaxPrefixBytes));
  return prefix;
}

}  // namespace

std::optional<RendezvousPlan> plan_rendezvous(const Options& options) {
  const Conf conf(options);
  const bool static_ranks = is_static(options);
  const auto node_rank = options.origin("node-rank", std::to_string(options.node_rank)).text();
  if (options.standalone || options.max_nodes == 1) {
    if (options.node_rank > 0 && static_ranks && !options.standalone)
      throw UsageError(
          fmt::format("{}: a job of one node has node rank 0 only; set the number of nodes with "
                      "--nnodes",
                      node_rank));
    return std::nullopt;
  }
  RendezvousPlan plan;
  plan.rules = rules_of(options, conf);
  if (static_ranks) {
    const MasterAddress address = master_address(options);
    if (options.node_rank >= options.max_nodes)
      throw UsageError(
          fmt::format("{} is out of range: {} has node ranks 0 to {}", node_rank,
                      options.origin("nnodes", std::to_string(options.max_nodes)).text(),
                      options.max_nodes - 1));
    if (options.min_nodes != options.max_nodes)
      throw UsageError(
          fmt::format("{}: an elastic job needs a rendezvous endpoint; set it with "
                      "--rdzv-endpoint HOST:PORT",
                      options.origin("nnodes").text()));
    plan.host = address.host;
    plan.port = address.port != 0 ? address.port : kStaticPort;
    plan.node_rank = options.node_rank;
    plan.runs_leader = options.node_rank == 0;
    return plan;
  }
  if (options.rdzv_endpoint.empty())
    throw UsageError(
        fmt::format("{}: several nodes need a rendezvous endpoint; set it with --rdzv-endpoint "
                    "HOST:PORT",
                    options.origin("rdzv-backend", options.rdzv_backend).text()));
  if (options.was_given("node-rank")) plan.node_rank = options.node_rank;
  plan.position = options.scheduler.node_rank.value_or(-1);
  plan.local_addr = options.local_addr;
  if (options.rdzv_backend.starts_with("etcd")) {
    plan.etcd = etcd_access(options, conf);
    plan.etcd_prefix = etcd_prefix(conf);
    plan.accept_unsigned_state = conf.flag("accept_unsigned_state").value_or(false);
    const auto origin = options.origin("rdzv-conf");
    plan.conf_origin = origin.name + origin.joint;
    plan.port = options.master_port.value_or(0);
    return plan;
  }
  const MasterAddress endpoint = split_endpoint(options.rdzv_endpoint);
  plan.host = endpoint.host;
  plan.port = endpoint.port != 0 ? endpoint.port : kDynamicPort;
  plan.runs_leader = conf.flag("is_host");
  return plan;
}

}  // namespace mgpu::launcher
