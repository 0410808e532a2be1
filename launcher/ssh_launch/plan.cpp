#include "launcher/ssh_launch/plan.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "launcher/options/option_table.hpp"
#include "launcher/plan/dry_run.hpp"
#include "rendezvous/base/exit_status.hpp"
#include "rendezvous/base/spelling.hpp"
#include "rendezvous/base/text_table.hpp"

namespace mgpu::launcher {

using rendezvous::text_table;
namespace {

// Options that are set for each agent separately, or not passed on.
const std::set<std::string> kNotPassedOn{
    "hostfile",        "ssh-command", "nnodes",           "master-addr", "master-port",
    "rdzv-token-file", "insecure",    "rdzv-token-stdin", "dry-run",     "json"};

void check(const Options& o, std::size_t hosts) {
  if (o.standalone) throw UsageError("--standalone and --hostfile cannot be combined; drop one");
  if (o.was_given("node-rank"))
    throw UsageError(
        "--node-rank and --hostfile cannot be combined: the order of the hosts in the file sets "
        "their node ranks; drop --node-rank");
  if (o.was_given("nnodes") && static_cast<std::size_t>(o.min_nodes) > hosts)
    throw UsageError(fmt::format("{}: {} lists only {} host{}; add hosts or lower --nnodes",
                                 o.origin("nnodes").text(), rendezvous::shown(o.hostfile, 300),
                                 hosts, hosts == 1 ? "" : "s"));
}

// The default prefix of a job's keys in etcd has the name of the user that runs the agent. Agents
// with different prefixes would never find each other.
void check_users(const Options& o, const std::vector<AgentStart>& agents,
                 const SshLaunchFacts& facts) {
  if (!o.rdzv_backend.starts_with("etcd") || o.rdzv_conf.contains("prefix")) return;
  const auto user_of = [&](const AgentStart& agent) {
    return agent.host.user.empty() ? facts.user : agent.host.user;
  };
  for (const auto& agent : agents)
    if (user_of(agent) != user_of(agents.front()))
      throw UsageError(
          fmt::format("{} and {} have different users, so the agents would use different keys in "
                      "etcd; set the same ones with --rdzv-conf prefix=/mgpu-run/NAME",
                      agents.front().host.address(), agent.host.address()));
}

bool is_local(const Host& host, const SshLaunchFacts& facts) {
  if (!host.user.empty() && host.user != facts.user) return false;
  const auto& name = host.name;
  return name == "localhost" || name == "127.0.0.1" || name == "::1" || name == facts.host_name ||
         name == facts.host_name.substr(0, facts.host_name.find('.'));
}

// The address of node 0 for the other nodes, for which "localhost" would be a different host.
std::string first_address(const std::vector<AgentStart>& agents, const SshLaunchFacts& facts) {
  const bool all_here =
      std::all_of(agents.begin(), agents.end(), [](const auto& agent) { return agent.local; });
  if (all_here) return "127.0.0.1";
  return agents.front().local ? facts.host_name : agents.front().host.name;
}

std::vector<std::string> rendezvous_arguments(const Options& o,
                                              const std::vector<AgentStart>& agents,
                                              const SshLaunchFacts& facts) {
  if (agents.size() == 1 && !o.was_given("master-addr") && !o.was_given("master-port")) return {};
  if (o.was_given("rdzv-endpoint") || o.rdzv_backend.starts_with("etcd")) return {};
  auto host = o.master_addr.value_or(first_address(agents, facts));
  const int port = o.master_port.value_or(0) > 0 ? *o.master_port : facts.port;
  const bool elastic =
      o.rdzv_backend == "c10d" || (o.was_given("nnodes") && o.min_nodes != o.max_nodes);
  if (!elastic) return {"--master-addr=" + host, fmt::format("--master-port={}", port)};
  if (host.find(':') != host.npos) host = fmt::format("[{}]", host);
  return {fmt::format("--rdzv-endpoint={}:{}", host, port), "--rdzv-backend=c10d"};
}

std::optional<int> ranks_on(const Options& o, const Host& host) {
  if (o.was_given("nproc")) return std::nullopt;  // it is passed on unchanged
  if (host.slots) return host.slots;
  if (o.nproc.kind == RankCount::Kind::number) return o.nproc.number;  // torchrun's default
  return std::nullopt;
}

std::vector<std::string> shared_arguments(const Options& o) {
  std::vector<std::string> arguments;
  for (const auto& word : o.line_options) {
    const auto name = word.substr(2, word.find('=') - 2);
    if (!kNotPassedOn.contains(name) && name != "report") arguments.push_back(word);
  }
  if (o.append_local_rank)
    arguments.push_back("--no-use-env");  // implied by the name that mgpu-run was started with
  return arguments;
}

}  // namespace

std::vector<AgentStart> plan_ssh_launch(const Options& o, const std::vector<Host>& hosts,
                                        const SshLaunchFacts& facts) {
  check(o, hosts.size());
  const int count = static_cast<int>(hosts.size());
  const int most = o.was_given("nnodes") ? std::min(o.max_nodes, count) : count;
  const int least = o.was_given("nnodes") ? std::min(o.min_nodes, most) : count;

  std::vector<AgentStart> agents;
  for (int i = 0; i < most; ++i)
    agents.push_back({.host = hosts[static_cast<std::size_t>(i)], .local = false, .arguments = {}});
  for (auto& agent : agents) agent.local = is_local(agent.host, facts);
  check_users(o, agents, facts);

  const auto nodes =
      least == most ? fmt::format("--nnodes={}", most) : fmt::format("--nnodes={}:{}", least, most);
  const auto rendezvous_args = rendezvous_arguments(o, agents, facts);
  for (std::size_t rank = 0; rank < agents.size(); ++rank) {
    auto& [host, local, arguments] = agents[rank];
    arguments = shared_arguments(o);
    arguments.push_back(nodes);
    arguments.push_back(fmt::format("--node-rank={}", rank));
    arguments.insert(arguments.end(), rendezvous_args.begin(), rendezvous_args.end());
    if (const auto ranks = ranks_on(o, host))
      arguments.push_back(fmt::format("--nproc={}", *ranks));
    if (rank == 0 && !o.report.empty()) arguments.push_back("--report=" + o.report);
    arguments.push_back("--rdzv-token-stdin");
    if (!o.only_set) arguments.insert(arguments.end(), {"--", o.target});
    arguments.insert(arguments.end(), o.args.begin(), o.args.end());
  }
  return agents;
}

std::string ssh_launch_text(const std::vector<AgentStart>& agents) {
  std::vector<std::vector<std::string>> rows{{"node", "host", "started", "command"}};
  for (std::size_t rank = 0; rank < agents.size(); ++rank) {
    std::string command = "mgpu-run";
    for (const auto& word : agents[rank].arguments) command += " " + shell_word(word);
    rows.push_back({std::to_string(rank), agents[rank].host.address(),
                    agents[rank].local ? "locally" : "over ssh", command});
  }
  return text_table(rows);
}

bool SshLaunchPolicy::lost(const ExitReport& report, bool over_ssh) {
  return over_ssh && (report.signal || report.code == kSshFailed);
}

SshLaunchPolicy::Step SshLaunchPolicy::agent_exited(const ExitReport& report, bool over_ssh) {
  --left_;
  if (report.clean()) return Step::wait;
  if (lost(report, over_ssh)) {
    if (--reachable_ >= least_) return Step::wait;
    decide(exit_status::kRendezvousFailed);
    return Step::stop_at_once;
  }
  decide(report.shell_status());
  const bool may_not_have_started = report.code == exit_status::kUsage ||
                                    report.code == exit_status::kCannotEnter ||
                                    report.code == exit_status::kCannotExecute;
  return may_not_have_started ? Step::stop_at_once : Step::stop_in_time;
}

void SshLaunchPolicy::stop_requested(Signal signal) {
  decide(signal.shell_status());
}

void SshLaunchPolicy::decide(int status) {
  if (!decided_) status_ = status;
  decided_ = true;
}

}  // namespace mgpu::launcher
