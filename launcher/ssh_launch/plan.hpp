#pragma once

#include <string>
#include <vector>

#include "launcher/lifecycle/exit_report.hpp"
#include "launcher/options/hostfile.hpp"
#include "launcher/options/options.hpp"

namespace mgpu::launcher {

// One agent of a --hostfile job.
struct AgentStart {
  Host host;
  bool local = false;                  // on this machine, without ssh
  std::vector<std::string> arguments;  // after the program's name
};

// Facts about this machine for planning the agents.
struct SshLaunchFacts {
  std::string host_name;
  std::string user;
  int port = 0;  // of the rendezvous endpoint if no --master-port is given
};

// Plans the agents of the job by node rank: all hosts of the file, or the first ones if --nnodes is
// smaller. Each gets the options of the command line, its node rank, and the secret on stdin.
// Throws UsageError for options that cannot be combined with a hostfile.
std::vector<AgentStart> plan_ssh_launch(const Options& options, const std::vector<Host>& hosts,
                                        const SshLaunchFacts& facts);

// The agents as a table: the dry run of a --hostfile.
std::string ssh_launch_text(const std::vector<AgentStart>& agents);

// Decides what the exit of one agent means for the others. Agents of one job exit with one status;
// a host that ssh cannot reach or has lost is missing for all of them. Does no I/O, reads no clock.
class SshLaunchPolicy {
 public:
  static constexpr int kSshFailed = 255;

  enum class Step {
    wait,          // the others continue without it
    stop_in_time,  // the others exit by themselves, because the job ends; stop those that do not
    stop_at_once,  // the others would wait for it
  };
  SshLaunchPolicy(int agents, int least) : left_(agents), reachable_(agents), least_(least) {}

  Step agent_exited(const ExitReport& report, bool over_ssh);
  void stop_requested(Signal signal);

  // Whether ssh itself failed: it could not connect, lost the connection, or was killed.
  static bool lost(const ExitReport& report, bool over_ssh);

  bool done() const { return left_ == 0; }
  int status() const { return status_; }  // exit status of mgpu-run

 private:
  void decide(int status);

  int left_;
  int reachable_;
  int least_;
  bool decided_ = false;
  int status_ = 0;
};

}  // namespace mgpu::launcher
